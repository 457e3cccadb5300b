"""A node agent: one session at a time, a journal, runners, and the product's lease clock."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from control_plane.core.executions.domain import AttemptId
from control_plane.core.nodes.leases import LeaseVersion, ListedLease, Verdict
from node_agent.core.session import lease_clock
from node_agent.core.session.lease_clock import LeaseClock, SessionNumber, Standing
from tests.simulation.leases.kernel import Process
from tests.simulation.leases.messages import (
    Ack,
    Down,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Result,
    ResultAck,
    Run,
    Welcome,
)
from tests.simulation.leases.mutants import Mutant
from tests.simulation.leases.network import Stream
from tests.simulation.leases.runner import Runner

if TYPE_CHECKING:
    from tests.simulation.leases.world import World


@dataclass(slots=True)
class Entry:
    """What the journal keeps of one attempt."""

    step_id: str
    lease_version: LeaseVersion
    work_left_s: float
    is_finished: bool = False


class Node(Process):
    """One node: its journal outlives its processes, its lease clock and runners don't."""

    def __init__(self, world: "World", node_id: str) -> None:
        super().__init__(world.kernel)
        self.world = world
        self.node_id = node_id
        self.rate = world.random.uniform(0.98, 1.02)
        self.suspended_s = 0.0
        self.disturbed_until_s = 0.0
        self.unreachable_since_s: float | None = None
        self.journal: dict[AttemptId, Entry] = {}
        self.results: dict[AttemptId, LeaseVersion] = {}
        self.watermark = 0
        self.runners: dict[AttemptId, Runner] = {}
        self.clock = LeaseClock()
        self._stream: Stream | None = None
        self._generation = 0
        self._session = SessionNumber(0)
        self._number = 0
        self._stalled_at_s = 0.0
        self._armed_s: float | None = None
        self._patience_s = world.figures.lease_ttl_s / 6
        self._replica = world.random.randrange(len(world.replicas))

    # --- Life. ---

    def mono_s(self) -> float:
        return (self.kernel.now_s - self.suspended_s) * self.rate

    def start(self) -> None:
        self.is_alive = True
        self.clock = LeaseClock()
        self.runners = {}
        self._armed_s = None
        for attempt_id, entry in self.journal.items():
            self._local_hold(attempt_id, entry.lease_version)
            if self.world.mutant is Mutant.RESTART_RUNS_WITHOUT_KEEP:
                self._run(attempt_id)
        self._connect()

    def die(self) -> None:
        for runner in self.runners.values():
            runner.kill()
        stream, self._stream = self._stream, None
        if stream is not None and self.world.random.random() < 0.7:
            stream.close_by_node()
        super().die()

    def lose_journal(self) -> None:
        self.journal, self.results, self.watermark = {}, {}, 0

    def on_stall(self) -> None:
        if self.stalls == 1:
            self._stalled_at_s = self.kernel.now_s
            for runner in self.runners.values():
                runner.freeze()

    def on_resume(self) -> None:
        if self.world.mutant is Mutant.CLOCK_STOPS_IN_SUSPEND:
            self.suspended_s += self.kernel.now_s - self._stalled_at_s
        self._check_deadlines()
        for runner in list(self.runners.values()):
            runner.thaw()

    def _local_hold(self, attempt_id: AttemptId, version: LeaseVersion) -> None:
        self.clock.recovered(lease_clock.AttemptId(attempt_id), lease_clock.LeaseVersion(version))

    # --- The session. ---

    def _connect(self) -> None:
        if self._stream is not None:
            self._stream.close_by_node()
        self._generation, self._number = 0, 0
        self._replica = (self._replica + 1) % len(self.world.replicas)
        replica = self.world.replicas[self._replica]
        if not replica.is_alive:
            self._stream = None
            self.after(0.01 + self._backoff_s(), self._connect)
            return
        stream = Stream(self.world.network, self, replica, self.life, replica.life)
        self._stream = stream
        self._session = self.clock.hello_sent(self.mono_s())
        stream.send_up(Hello(self.watermark, self._held()))
        self.after(self._patience_s, lambda: self._give_up(stream))

    def _backoff_s(self) -> float:
        return self.world.random.uniform(0.2, 1.0) * self.world.figures.reconnect_backoff_s_max

    def _give_up(self, stream: Stream) -> None:
        """Leave a replica that does not answer Hello."""
        if self._stream is stream and self._generation == 0:
            self._patience_s = min(2 * self._patience_s, self.world.figures.lease_ttl_s / 2)
            self._reconnect(stream)

    def _reconnect(self, stream: Stream) -> None:
        if self._stream is stream:
            stream.close_by_node()
            self._stream = None
            self.after(self._backoff_s(), self._connect)

    def _held(self) -> tuple[ListedLease, ...]:
        return tuple(
            ListedLease(AttemptId(held.attempt_id), LeaseVersion(held.lease_version))
            for held in self.clock.held()
        )

    def _beat(self, stream: Stream) -> None:
        if self._stream is not stream:
            return
        overdue_at_s = self.clock.answer_overdue_at_s()
        stays = self.world.mutant is Mutant.NODE_STAYS_WITH_SILENT_REPLICA
        if overdue_at_s is not None and self.mono_s() >= overdue_at_s and not stays:
            self._reconnect(stream)
            return
        self._send_results(stream)
        self._number += 1
        self.clock.heartbeat_sent(self._session, self._number, self.mono_s())
        stream.send_up(Heartbeat(self._generation, self._number, self._held()))
        interval_s = self.world.figures.heartbeat_interval_s / self.rate
        self.after(interval_s * self.world.random.uniform(0.95, 1.0), lambda: self._beat(stream))

    def on_message(self, stream: Stream, message: Down | None) -> None:
        self._check_deadlines()
        if stream is not self._stream:
            return
        match message:
            case None:
                self._reconnect(stream)
            case Welcome():
                self._welcome(stream, message)
            case HeartbeatReply():
                self._heartbeat_reply(message)
            case Run():
                self._run_command(stream, message)
            case ResultAck():
                self._forget(message.attempt_id)
        self._arm()
        self.world.faults.received(self, type(message).__name__)

    def _welcome(self, stream: Stream, welcome: Welcome) -> None:
        self._generation = welcome.generation
        self._patience_s = self.world.figures.lease_ttl_s / 6
        self.clock.welcomed(self._session, self.world.figures.lease_ttl_s)
        for attempt_id, verdict in welcome.verdicts.items():
            entry = self.journal.get(attempt_id)
            if entry is None:
                continue
            if verdict is Verdict.KEEP:
                self._renewed(attempt_id, entry.lease_version, lease_clock.HELLO_NUMBER)
            else:
                lease = ListedLease(attempt_id, entry.lease_version)
                self.world.check_forgotten(self, lease)
                self._drop(attempt_id, entry.lease_version)
        self._beat(stream)

    def _send_results(self, stream: Stream) -> None:
        """Send what is unacked again, with each heartbeat."""
        for attempt_id, version in self.results.items():
            stream.send_up(Result(attempt_id, version))

    # --- Leases. ---

    def _heartbeat_reply(self, reply: HeartbeatReply) -> None:
        self.clock.heartbeat_answered(self._session, reply.number)
        for lease in reply.renewed:
            self._renewed(lease.attempt_id, lease.lease_version, reply.number)
        for lease in reply.lost:
            self.world.check_named_lost(self, lease)
            self._drop(lease.attempt_id, lease.lease_version)

    def _renewed(self, attempt_id: AttemptId, version: LeaseVersion, number: int) -> None:
        name, numbered = lease_clock.AttemptId(attempt_id), lease_clock.LeaseVersion(version)
        if self.world.mutant is Mutant.DEADLINE_FROM_RECEIPT:
            # A heartbeat of this very moment, which was never sent.
            self._number += 1
            number = self._number
            self.clock.heartbeat_sent(self._session, number, self.mono_s())
        standing = self.clock.renewed(name, numbered, self._session, number)
        if standing is Standing.RUNNABLE:
            self._run(attempt_id)

    def _run_command(self, stream: Stream, run: Run) -> None:
        if run.sequence > self.watermark:
            self.watermark = run.sequence
            work_s = self.world.random.uniform(0.5, 9.0)
            self.journal[run.attempt_id] = Entry(run.step_id, run.lease_version, work_s)
            self._first_deadline(run)
        stream.send_up(Ack(self._generation, self.watermark))

    def _first_deadline(self, run: Run) -> None:
        figures = self.world.figures
        remaining_s = run.remaining_s
        if self.world.mutant is Mutant.RUN_KEEPS_FIVE_SIXTHS:
            remaining_s = remaining_s * 5 / 6 + figures.margin_s
        standing = self.clock.run_received(
            lease_clock.AttemptId(run.attempt_id),
            lease_clock.LeaseVersion(run.lease_version),
            remaining_s,
            self._session,
            run.last_heartbeat_number,
        )
        self._check_deadlines()
        if standing is Standing.RUNNABLE:
            self._run(run.attempt_id)

    def _check_deadlines(self) -> None:
        expired = self.clock.expired(self.mono_s())
        if self.world.mutant is Mutant.NO_NODE_DEADLINE:
            return
        for attempt_id in expired:
            runner = self.runners.get(AttemptId(attempt_id))
            if runner is not None:
                runner.stop()

    def _arm(self) -> None:
        deadline_s = self.clock.next_deadline_s()
        if deadline_s is not None and (self._armed_s is None or deadline_s < self._armed_s):
            self._armed_s = deadline_s
            self.after((deadline_s - self.mono_s()) / self.rate + 1e-6, self._deadline_came)

    def _deadline_came(self) -> None:
        self._check_deadlines()
        if self._armed_s is not None and self.mono_s() >= self._armed_s:
            self._armed_s = None
        self._arm()

    # --- Work. ---

    def _run(self, attempt_id: AttemptId) -> None:
        """Start or resume an attempt, unless it runs, is finished or may not."""
        entry = self.journal.get(attempt_id)
        if entry is None or entry.is_finished or attempt_id in self.runners:
            return
        may_run = self.clock.may_run(lease_clock.AttemptId(attempt_id), self.mono_s())
        if may_run or self.world.mutant is Mutant.RESTART_RUNS_WITHOUT_KEEP:
            self.runners[attempt_id] = Runner(self, attempt_id, entry)

    def runner_ended(self, attempt_id: AttemptId) -> None:
        """Note the end of a runner; a lease renewed while it was stopping lets it go on."""
        del self.runners[attempt_id]
        entry = self.journal.get(attempt_id)
        if entry is None or not self.is_alive or self.is_stalled:
            return
        if entry.work_left_s > 0:
            self._run(attempt_id)
            return
        entry.is_finished = True
        self.results[attempt_id] = entry.lease_version
        if self._stream is not None and self._generation:
            self._stream.send_up(Result(attempt_id, entry.lease_version))

    def _drop(self, attempt_id: AttemptId, version: LeaseVersion) -> None:
        """Stop what is no longer ours; a result in the outbox is sent all the same."""
        self.clock.lost(lease_clock.AttemptId(attempt_id), lease_clock.LeaseVersion(version))
        self.journal.pop(attempt_id, None)
        runner = self.runners.get(attempt_id)
        if runner is not None:
            runner.stop()

    def _forget(self, attempt_id: AttemptId) -> None:
        self.results.pop(attempt_id, None)
        self.journal.pop(attempt_id, None)
        self.clock.released(lease_clock.AttemptId(attempt_id))
