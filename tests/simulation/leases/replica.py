"""A control-plane replica over the pure lease rules: its streams, Hello and the tick."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from control_plane.core.nodes import leases
from control_plane.core.nodes.leases import (
    DatabaseSeconds,
    Generation,
    LeaseGuard,
    ListedLease,
    NodeId,
    RenewalOutcome,
    ReplicaId,
)
from tests.simulation.leases.database import ATTEMPTS_TABLE, GUARD, Key, Reply, Transaction
from tests.simulation.leases.dispatch import Dispatch
from tests.simulation.leases.kernel import Process
from tests.simulation.leases.messages import (
    Ack,
    AttemptRow,
    Heartbeat,
    HeartbeatReply,
    Hello,
    NodeTableRow,
    Result,
    Up,
    Welcome,
)
from tests.simulation.leases.mutants import Mutant
from tests.simulation.leases.network import Stream
from tests.simulation.leases.reports import store_ack, store_result
from tests.simulation.leases.sessions import Session, TickAnswer, facts_of, lose
from tests.simulation.leases.sweep import Sweep

if TYPE_CHECKING:
    from tests.simulation.leases.world import World


class Replica(Process):
    """One process of the control plane; it is made anew by `start`."""

    def __init__(self, world: "World", index: int) -> None:
        super().__init__(world.kernel)
        self.world = world
        self.index = index
        self.sessions: dict[str, Session] = {}
        self._tick_running = False
        self._tick_wanted = False
        self._sweep, self.dispatch = Sweep(self), Dispatch(self)
        self.sessions_blocked_until_s = 0.0

    @property
    def replica_id(self) -> ReplicaId:
        return ReplicaId(f"replica-{self.index}.{self.life}")

    def start(self) -> None:
        self.is_alive = True
        self.sessions = {}
        self._tick_running = self._tick_wanted = False
        self._sweep, self.dispatch = Sweep(self), Dispatch(self)
        self.every(self.world.figures.stamp_interval_s, self._want_tick)
        self.every(0.5, self._sweep.run)
        self.every(0.25, self.dispatch.run)
        self.every(0.5, self.dispatch.send_all)
        self._want_tick()

    # --- Streams. ---

    def on_message(self, stream: Stream, message: Up | None) -> None:
        session = self._session_of(stream)
        match message:
            case None:
                stream.close_by_replica()
                self._end(session)
            case Hello():
                self._hello(stream, message)
            case Heartbeat():
                self._heartbeat(session, message)
            case Ack():
                store_ack(self, session, message)
            case Result():
                store_result(self, stream, message)

    def _session_of(self, stream: Stream) -> Session | None:
        session = self.sessions.get(stream.node.node_id)
        return session if session is not None and session.stream is stream else None

    def _end(self, session: Session | None) -> None:
        if session is not None and self.sessions.get(session.node_id) is session:
            session.stream.close_by_replica()
            del self.sessions[session.node_id]

    # --- Hello. ---

    def _hello(self, stream: Stream, hello: Hello) -> None:
        def judged(result: tuple[LeaseGuard, DatabaseSeconds] | None) -> None:
            if result is None:
                stream.close_by_replica()
                return
            guard, as_of_s = result
            if self.world.mutant is Mutant.HELLO_DOES_NOT_JUDGE_THE_GUARD:
                guard = self._guard_as_read
            self._open(stream, hello, guard, as_of_s)

        blocked_s = self.sessions_blocked_until_s - self.kernel.now_s
        if blocked_s > 0:
            self.after(blocked_s, lambda: self.judge(judged))
        else:
            self.judge(judged)

    def judge(self, reply: Reply) -> None:
        """Run the one statement that sweep and Hello begin with."""
        world = self.world

        def body(transaction: Transaction) -> tuple[LeaseGuard, DatabaseSeconds]:
            now_s = world.database.now_s()
            guard: LeaseGuard = transaction.get("guard")
            self._guard_as_read = guard
            judged = world.judge(guard, now_s)
            if world.mutant is Mutant.SWEEP_STAMPS_THE_GUARD:
                judged = LeaseGuard(now_s, judged.hold_until_s)
            if judged != guard and transaction.lock(GUARD):
                transaction.put("guard", "", judged)
            return judged, now_s

        world.database.submit(self, [], body, reply)

    def _open(
        self, stream: Stream, hello: Hello, guard: LeaseGuard, as_of_s: DatabaseSeconds
    ) -> None:
        node_id = stream.node.node_id
        world = self.world

        def body(transaction: Transaction) -> tuple[int, leases.WelcomePlan]:
            node: NodeTableRow = transaction.get("nodes", node_id)
            rows = [row for row in world.attempt_rows(transaction) if row.node_id == node_id]
            facts = [facts_of(row, node) for row in rows]
            plan = leases.plan_welcome(hello.held, facts, NodeId(node_id), guard, as_of_s)
            now_s = world.database.now_s()
            for attempt_id in plan.renew:
                row = transaction.get("attempts", attempt_id)
                until_s = leases.renewed_until_s(now_s, world.figures)
                transaction.put("attempts", attempt_id, replace(row, lease_expires_at_s=until_s))
            if world.mutant is Mutant.MISSING_ARE_LOST_AT_HELLO:
                for lease in plan.missing:
                    lose(transaction, lease.attempt_id, "MISSING")
            opened = replace(
                node,
                generation=node.generation + 1,
                replica_id=self.replica_id,
                seen_at_s=now_s,
                is_silent=False,
            )
            transaction.put("nodes", node_id, opened)
            return opened.generation, plan

        def opened(result: tuple[int, leases.WelcomePlan] | None) -> None:
            if result is None or not stream.replica_open:
                stream.close_by_replica()
                return
            self._welcome(stream, *result)

        keys: list[Key] = [ATTEMPTS_TABLE, ("nodes", node_id)]
        keys += [("attempts", lease.attempt_id) for lease in hello.held]
        world.database.submit(self, keys, body, opened)

    def _welcome(self, stream: Stream, generation: int, plan: leases.WelcomePlan) -> None:
        node_id = stream.node.node_id
        self._end(self.sessions.get(node_id))
        now_s = self.kernel.now_s
        session = Session(stream, node_id, generation, now_s, plan.missing)
        self.sessions[node_id] = session
        stream.send_down(Welcome(generation, plan.verdicts))
        self.dispatch.send(session)

    def _confirm(self, session: Session) -> None:
        """Mark what Hello omitted as LOST, now that the node has proved to have got Welcome."""
        session.is_confirmed = True
        if not session.missing:
            return

        def body(transaction: Transaction) -> bool:
            node: NodeTableRow = transaction.get("nodes", session.node_id)
            for lease in session.missing:
                row = transaction.get("attempts", lease.attempt_id)
                if leases.may_lose_missing(
                    lease,
                    facts_of(row, node),
                    NodeId(session.node_id),
                    session=Generation(session.generation),
                    node=Generation(node.generation),
                ):
                    lose(transaction, lease.attempt_id, "MISSING")
            return True

        keys: list[Key] = [ATTEMPTS_TABLE, ("nodes", session.node_id)]
        keys += [("attempts", lease.attempt_id) for lease in session.missing]
        self.world.database.submit(self, keys, body, lambda _: None)

    # --- Heartbeats and the tick. ---

    def _heartbeat(self, session: Session | None, heartbeat: Heartbeat) -> None:
        if session is None or heartbeat.generation != session.generation:
            return
        session.last_heard_s = self.kernel.now_s
        session.last_number = heartbeat.number
        session.pending = heartbeat
        if not session.is_confirmed:
            self._confirm(session)
        self._want_tick()

    def _want_tick(self) -> None:
        if self._tick_running:
            self._tick_wanted = True
            return
        self._tick_running = True
        blocked_s = self.sessions_blocked_until_s - self.kernel.now_s
        if blocked_s > 0:
            self.after(blocked_s, self._tick)
        else:
            self._tick()

    def _tick(self) -> None:
        self._tick_wanted = False
        heard = [(one, one.pending) for one in self.sessions.values() if one.pending is not None]
        if self.world.mutant is not Mutant.RENEWS_FROM_MEMORY:
            for session, _ in heard:
                session.pending = None

        def body(transaction: Transaction) -> list[TickAnswer]:
            return self._tick_body(transaction, heard)

        def done(answers: list[TickAnswer] | None) -> None:
            self._tick_running = False
            if answers is None and self.world.mutant is not Mutant.ANSWER_BEFORE_COMMIT:
                self._repeat(heard)
            for answer in answers or ():
                self._answer(answer)
            if self._tick_wanted:
                self._want_tick()

        self.world.database.submit(self, [ATTEMPTS_TABLE], body, done)

    def _repeat(self, heard: list[tuple[Session, Heartbeat]]) -> None:
        """Take the lists of a failed tick up again, where no newer one has come."""
        for session, heartbeat in heard:
            if session.pending is None:
                session.pending = heartbeat
        self.after(0.05, self._want_tick)

    def _tick_body(
        self, transaction: Transaction, heard: list[tuple[Session, Heartbeat]]
    ) -> list[TickAnswer]:
        world = self.world
        now_s = world.database.now_s()
        guard: LeaseGuard = transaction.get("guard")
        judged = world.judge(guard, now_s)
        answers: list[TickAnswer] = []
        starved = False
        for session, heartbeat in heard:
            node: NodeTableRow = transaction.get("nodes", session.node_id)
            if node.generation != session.generation:
                lost = heartbeat.leases
                names = world.mutant is Mutant.REPLACED_SESSION_NAMES_LEASES_LOST
                reply = HeartbeatReply(heartbeat.number, (), lost) if names else None
                answers.append(TickAnswer(session, reply))
                continue
            reply, skipped_starved = self._renew(transaction, node, heartbeat, judged, now_s)
            starved |= skipped_starved
            answers.append(TickAnswer(session, reply))
        due = leases.stamp_is_due(guard, now_s, world.figures, leases_live=bool(world.live))
        if (due or starved or judged != guard) and transaction.lock(GUARD):
            transaction.put("guard", "", world.stamp(guard, now_s, starved=starved))
        transaction.put("replicas", str(self.index), (self.replica_id, now_s))
        self._write_nodes(transaction, now_s)
        if world.mutant is Mutant.ANSWER_BEFORE_COMMIT:
            for answer in answers:
                self.after(0.0, partial(self._answer, answer))
            return []
        return answers

    def _renew(
        self,
        transaction: Transaction,
        node: NodeTableRow,
        heartbeat: Heartbeat,
        judged: LeaseGuard,
        now_s: DatabaseSeconds,
    ) -> tuple[HeartbeatReply, bool]:
        world = self.world
        renewed: list[ListedLease] = []
        lost: list[ListedLease] = []
        starved = False
        for listed in heartbeat.leases:
            key: Key = ("attempts", listed.attempt_id)
            row: AttemptRow | None = transaction.get(*key)
            facts = None if row is None else facts_of(row, node)
            outcome = leases.judge_renewal(
                listed,
                facts,
                NodeId(node.node_id),
                judged,
                now_s,
                world.figures,
                row_is_locked=transaction.is_locked(key),
            )
            if outcome is RenewalOutcome.RENEWED and row is not None:
                over = row.lease_expires_at_s - now_s > world.figures.lease_ttl_s
                if over and world.mutant is Mutant.CLOCK_GOING_BACK_IS_NOT_SEEN:
                    continue
                transaction.lock(key)
                until_s = leases.renewed_until_s(now_s, world.figures)
                transaction.put(*key, replace(row, lease_expires_at_s=until_s))
                renewed.append(listed)
            elif outcome is RenewalOutcome.NOT_DUE:
                if world.mutant is Mutant.NOT_DUE_IS_NAMED_RENEWED:
                    renewed.append(listed)
            elif outcome is RenewalOutcome.SKIPPED and row is not None:
                starved |= leases.is_starved(row.lease_expires_at_s, now_s, world.figures)
            elif outcome is RenewalOutcome.LOST:
                lost.append(listed)
        return HeartbeatReply(heartbeat.number, tuple(renewed), tuple(lost)), starved

    def _write_nodes(self, transaction: Transaction, now_s: DatabaseSeconds) -> None:
        """Refresh the rows of heard nodes twice in a TTL at most, and mark the unheard SILENT."""
        for session in self.sessions.values():
            key: Key = ("nodes", session.node_id)
            node: NodeTableRow = transaction.get(*key)
            if node.generation != session.generation or transaction.is_locked(key):
                continue
            silent = leases.is_silent(session.last_heard_s, self.kernel.now_s, self.world.figures)
            stale = leases.node_row_is_stale(
                leases.NodeRow(node.replica_id, node.seen_at_s, node.is_silent),
                now_s,
                self.world.figures,
            )
            if silent != node.is_silent or (stale and not silent):
                transaction.lock(key)
                transaction.put(*key, replace(node, seen_at_s=now_s, is_silent=silent))

    def _answer(self, answer: TickAnswer) -> None:
        session = answer.session
        if answer.reply is None:
            self._end(session)
        elif self.sessions.get(session.node_id) is session:
            session.stream.send_down(answer.reply)
