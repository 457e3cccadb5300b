"""Runs attempts under their leases: starts, stops and resumes them, and tells how they ended."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from structlog.contextvars import bind_contextvars

from foundation.wakeup import Wakeup
from node_agent.core.execution.attempt import (
    Attempt,
    Drop,
    End,
    Phase,
    StopCause,
    Tell,
    Wait,
    end_of,
    infrastructure_failure,
    interrupted,
    stop_without_run,
    stored_attempt,
)
from node_agent.core.execution.credits import CreditLedger
from node_agent.core.execution.grants import GrantTools
from node_agent.core.execution.ports import CapabilityHost
from node_agent.core.execution.reporting import Reporter
from node_agent.core.execution.running import AttemptRuns, WorkFolders
from node_agent.core.journal.domain import (
    ForgetAttempt,
    JournalContents,
    StopReason,
)
from node_agent.core.journal.events import Fact
from node_agent.core.journal.ports import Journal
from node_agent.core.session.lease_clock import (
    AttemptId,
    HeldLease,
    LeaseClock,
    LeaseVersion,
    SessionNumber,
    Standing,
)
from node_agent.core.session.mailbox import Mailbox
from node_agent.core.session.messages import HeldAttempt, RunCommand, Verdict

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """`process_slot_count` attempts in children at once; `slot_count` of all kinds held."""

    process_slot_count: int
    slot_count: int


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """Those with whom the runner works."""

    host: CapabilityHost
    journal: Journal
    reporter: Reporter
    mailbox: Mailbox
    clock: LeaseClock
    boot_clock_s: Callable[[], float]
    folders: WorkFolders
    grants: GrantTools
    supports_resume: Callable[[str, str], bool]


class AttemptRunner:
    """A Service, and the Attempts that a session speaks of."""

    name = "attempt-runner"

    def __init__(self, config: RunnerConfig, parts: RunnerParts, contents: JournalContents) -> None:
        """Take up what the journal holds: its attempts wait for KEEP."""
        self._config = config
        self._parts = parts
        declared = parts.host.declarations()
        self._declared = {(one.name, one.version): one.inline for one in declared}
        self._attempts: dict[AttemptId, Attempt] = {}
        self._queue: deque[Attempt] = deque()
        self._credits = CreditLedger(config.slot_count)
        self._unfinished_count = 0
        self._process_count = 0
        self._runs = AttemptRuns(
            parts.host, parts.journal, parts.reporter, parts.mailbox, parts.folders, parts.grants
        )
        self._group: asyncio.TaskGroup | None = None
        self._deadline_wakeup = Wakeup()
        self._armed_at_s: float | None = None
        self._rearms = False
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._recover(contents)

    def _recover(self, contents: JournalContents) -> None:
        for stored in contents.attempts:
            inline = self._declared.get((stored.spec.capability, stored.spec.capability_version))
            attempt = stored_attempt(stored, is_inline=inline or False)
            self._add(attempt)
            if attempt.is_unfinished:
                version = LeaseVersion(attempt.spec.lease_version)
                self._parts.clock.recovered(attempt.spec.attempt_id, version)

    # --- A Service. ---

    async def start(self) -> None:
        """Remove the folders of attempts that are no longer held."""
        known = [key for key, one in self._attempts.items() if one.is_unfinished]
        await asyncio.to_thread(self._parts.folders.remove_unknown_work_folders, known)

    async def run(self) -> None:
        """Run attempts until `stop`; raises what the journal raises."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                deadlines = group.create_task(self._watch_deadlines(), name="lease-deadlines")
                await self._stopping.wait()
                deadlines.cancel()
        finally:
            self._ended.set()
            self._changed.set()

    async def stop(self) -> None:
        """End; what still runs is stopped and, as far as it says so, told. Idempotent."""
        self._stop_all(StopCause.DRAIN)
        self._stopping.set()
        if self._group is not None:
            await self._ended.wait()

    async def drain(self, grace_s: float) -> None:
        """Give back what has not begun, let the rest end in its time, then stop it."""
        self._give_back_queued()
        try:
            async with asyncio.timeout(grace_s):
                await self._wait_idle()
        except TimeoutError:
            self._stop_all(StopCause.DRAIN)
            await self._wait_idle()

    def _give_back_queued(self) -> None:
        for attempt in list(self._attempts.values()):
            fresh = attempt.phase is Phase.WAITING and not attempt.was_started
            if attempt.phase is Phase.QUEUED or fresh:
                self._tell(
                    attempt,
                    infrastructure_failure(
                        "AGENT_DRAINING", "the agent stopped taking work before this had begun"
                    ),
                )

    async def _wait_idle(self) -> None:
        busy = (Phase.RUNNING, Phase.ENDING)
        while not self._ended.is_set() and any(
            one.phase in busy for one in self._attempts.values()
        ):
            self._changed.clear()
            await self._changed.wait()

    def stop_for_drain(self) -> None:
        """Stop everything that runs: the drain's grace is over."""
        self._stop_all(StopCause.DRAIN)

    def _stop_all(self, cause: StopCause) -> None:
        for attempt in self._attempts.values():
            if attempt.is_working:
                attempt.ask_to_stop(cause)

    # --- Attempts, as the session speaks of them. ---

    def held(self) -> Sequence[HeldAttempt]:
        """See Attempts."""
        return tuple(
            HeldAttempt(one.lease, is_finished=not one.is_unfinished)
            for one in self._attempts.values()
        )

    @property
    def unfinished_count(self) -> int:
        """Attempts that have not ended."""
        return self._unfinished_count

    def credits_for_hello(self) -> int:
        """See Attempts."""
        return self._credits.hello(self._unfinished_count)

    def check_deadlines(self) -> None:
        """See Attempts."""
        for attempt_id in self._parts.clock.expired(self._parts.boot_clock_s()):
            attempt = self._attempts.get(attempt_id)
            if attempt is None:
                continue
            if attempt.is_working:
                _log.warning("lease_passed", attempt_id=attempt_id)
                attempt.ask_to_stop(StopCause.LEASE_PASSED)
            elif attempt.phase is Phase.QUEUED:
                attempt.phase = Phase.WAITING

    def judged(self, session: SessionNumber, lease: HeldLease, verdict: Verdict) -> None:
        """See Attempts."""
        clock = self._parts.clock
        attempt = self._attempt_of(lease)
        if attempt is None:
            return
        if verdict is Verdict.FORGET:
            clock.released(lease.attempt_id)
            self._forget(attempt)
            return
        clock.kept(lease.attempt_id, lease.lease_version, session)
        if verdict is Verdict.CANCEL:
            self.order_stop(attempt, attempt.stop_reason or StopReason.CANCEL)
        else:
            self._consider(attempt)

    def renewed(self, session: SessionNumber, lease: HeldLease, heartbeat_number: int) -> None:
        """See Attempts."""
        standing = self._parts.clock.renewed(
            lease.attempt_id, lease.lease_version, session, heartbeat_number
        )
        attempt = self._attempts.get(lease.attempt_id)
        if standing is Standing.RUNNABLE and attempt is not None:
            self._consider(attempt)

    def lost(self, lease: HeldLease) -> None:
        """See Attempts."""
        attempt = self._attempt_of(lease)
        if self._parts.clock.lost(lease.attempt_id, lease.lease_version) and attempt is not None:
            _log.warning("lease_lost", attempt_id=lease.attempt_id)
            self._forget(attempt)

    def final_event_acked(self, attempt_id: AttemptId) -> None:
        """Let go of an attempt whose end the server has stored."""
        self._parts.clock.released(attempt_id)
        self._attempts.pop(attempt_id, None)

    # --- What commands do, once they are stored. ---

    def find(self, attempt_id: AttemptId) -> Attempt | None:
        """Return a held attempt."""
        return self._attempts.get(attempt_id)

    def new_attempt(self, command: RunCommand) -> Attempt:
        """Return the attempt that a RUN gives, not held yet."""
        spec = command.spec
        inline = self._declared.get((spec.capability, spec.capability_version), False)
        return Attempt(spec, is_inline=inline, run_timeout_s=spec.run_timeout_s)

    def offers(self, capability: str, version: str) -> bool:
        """Whether a capability can be run here."""
        return (capability, version) in self._declared

    def spend_credits(self, run_count: int) -> None:
        """Note RUN commands that came."""
        self._credits.spent(run_count)

    def begin(self, attempt: Attempt, session: SessionNumber, command: RunCommand) -> None:
        """Hold a stored attempt, and run it if its lease lets it."""
        self._add(attempt)
        self._parts.clock.run_received(
            attempt.spec.attempt_id,
            LeaseVersion(attempt.spec.lease_version),
            command.lease_remaining_s,
            session,
            command.last_heartbeat_number,
        )
        self._consider(attempt)

    def hold_refused(self, attempt: Attempt) -> None:
        """Hold a refused attempt until its event is acknowledged."""
        attempt.phase = Phase.FINISHED
        self._add(attempt)
        self._give_credits()

    def order_stop(self, attempt: Attempt, reason: StopReason) -> None:
        """Stop an attempt as the control plane orders; the first reason counts."""
        attempt.stop_reason = attempt.stop_reason or reason
        if attempt.phase in (Phase.WAITING, Phase.QUEUED):
            self._tell(attempt, stop_without_run(attempt))
        elif attempt.is_working:
            attempt.ask_to_stop(StopCause.ORDERED)

    def extend(self, attempt: Attempt, extension_s: float) -> None:
        """Move the run time-out of an attempt that has one."""
        if attempt.run_timeout_s > 0:
            attempt.run_timeout_s += extension_s
            self._runs.extend_timeout(attempt, extension_s)

    # --- Inside: phases. ---

    def _add(self, attempt: Attempt) -> None:
        self._attempts[attempt.spec.attempt_id] = attempt
        self._unfinished_count += attempt.is_unfinished

    def _attempt_of(self, lease: HeldLease) -> Attempt | None:
        attempt = self._attempts.get(lease.attempt_id)
        return attempt if attempt is not None and attempt.lease == lease else None

    def _consider(self, attempt: Attempt) -> None:
        """Start or resume a waiting attempt, if it may run; tell its end if it can't go on."""
        if attempt.phase is not Phase.WAITING:
            return
        if attempt.stop_reason is not None:
            self._tell(attempt, stop_without_run(attempt))
        elif self._may_run(attempt):
            self._rearm_soon()
            if not self._can_go_on(attempt):
                self._tell(attempt, interrupted(attempt))
            elif attempt.is_inline:
                self._start(attempt)
            else:
                attempt.phase = Phase.QUEUED
                self._queue.append(attempt)
                self._fill()

    def _can_go_on(self, attempt: Attempt) -> bool:
        """Whether its capability is here, and can take up work that has begun before."""
        spec = attempt.spec
        return self.offers(spec.capability, spec.capability_version) and (
            not attempt.was_started
            or self._parts.supports_resume(spec.capability, spec.capability_version)
        )

    def _may_run(self, attempt: Attempt) -> bool:
        return self._parts.clock.may_run(attempt.spec.attempt_id, self._parts.boot_clock_s())

    def _fill(self) -> None:
        """Start queued attempts while there are slots."""
        while self._queue and self._process_count < self._config.process_slot_count:
            attempt = self._queue.popleft()
            if attempt.phase is not Phase.QUEUED:
                continue
            if self._may_run(attempt):
                self._process_count += 1
                self._start(attempt)
            else:
                attempt.phase = Phase.WAITING

    def _start(self, attempt: Attempt) -> None:
        attempt.runs_again()
        attempt.phase = Phase.RUNNING
        self._spawn(self._work(attempt), f"attempt-{attempt.spec.attempt_id}")

    def _forget(self, attempt: Attempt) -> None:
        """Stop what is no longer ours; an end that is being told, or was, is sent all the same."""
        if attempt.is_working:
            attempt.ask_to_stop(StopCause.FORGOTTEN)
        elif attempt.phase in (Phase.WAITING, Phase.QUEUED):
            attempt.phase = Phase.ENDING
            self._spawn(self._conclude(attempt, Drop()), f"forget-{attempt.spec.attempt_id}")

    def _tell(self, attempt: Attempt, fact: Fact) -> None:
        attempt.phase = Phase.ENDING
        self._spawn(self._conclude(attempt, Tell(fact)), f"end-{attempt.spec.attempt_id}")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        assert self._group is not None, "the runner's run() comes before any session"
        self._group.create_task(work, name=name)

    # --- Inside: the end of a run. ---

    async def _work(self, attempt: Attempt) -> None:
        # The task is the attempt's own: what is bound ends with it.
        bind_contextvars(attempt_id=attempt.spec.attempt_id, task_id=attempt.spec.task_id)
        outcome = await self._runs.outcome(attempt)
        attempt.phase = Phase.ENDING
        if not attempt.is_inline:
            self._process_count -= 1
            self._fill()
        await self._conclude(attempt, end_of(attempt, outcome))

    async def _conclude(self, attempt: Attempt, end: End) -> None:
        match end:
            case Tell(fact):
                await self._parts.reporter.finish(attempt, fact)
                attempt.phase = Phase.FINISHED
                await self._let_go(attempt)
            case Drop():
                writes = [ForgetAttempt(attempt.spec.attempt_id)]
                await self._parts.journal.submit_in_any_case(writes)
                self._attempts.pop(attempt.spec.attempt_id, None)
                self._parts.clock.released(attempt.spec.attempt_id)
                await self._let_go(attempt)
            case Wait():
                attempt.phase = Phase.WAITING
                self._consider(attempt)
        self._changed.set()

    async def _let_go(self, attempt: Attempt) -> None:
        """Free what an attempt that is over had: room, progress, folder."""
        attempt_id = attempt.spec.attempt_id
        self._unfinished_count -= 1
        self._give_credits()
        self._parts.mailbox.forget_progress(attempt_id)
        if not self._parts.folders.remove_empty_work_folder(attempt_id):
            await asyncio.to_thread(self._parts.folders.remove_work_folder, attempt_id)

    def _give_credits(self) -> None:
        count = self._credits.to_give(self._unfinished_count)
        if count:
            self._parts.mailbox.credit(count)

    # --- Inside: deadlines. ---

    async def _watch_deadlines(self) -> None:
        while True:
            self.check_deadlines()
            self._armed_at_s = self._parts.clock.next_deadline_s()
            wait_s = None
            if self._armed_at_s is not None:
                wait_s = max(self._armed_at_s - self._parts.boot_clock_s(), 0.0)
            await self._deadline_wakeup.wait(wait_s)

    def _rearm_soon(self) -> None:
        if not self._rearms:
            self._rearms = True
            asyncio.get_running_loop().call_soon(self._rearm)

    def _rearm(self) -> None:
        self._rearms = False
        next_s = self._parts.clock.next_deadline_s()
        armed_s = self._armed_at_s
        if next_s is not None and (armed_s is None or next_s < armed_s):
            self._deadline_wakeup.set()
