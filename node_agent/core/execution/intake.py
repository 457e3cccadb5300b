"""Commands on their way in: stored in one transaction, acknowledged once, then obeyed in order."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from foundation.failpoints import failpoint
from foundation.sqlite.errors import LocalDiskFullError
from foundation.wakeup import Wakeup
from node_agent.core.execution.application import AttemptRunner
from node_agent.core.execution.attempt import Attempt, infrastructure_failure
from node_agent.core.execution.drain import DrainControl
from node_agent.core.execution.readiness import NotReady
from node_agent.core.execution.reporting import Reporter
from node_agent.core.journal.domain import (
    CommandKind,
    DrainMark,
    KeepAttempt,
    KeepOrder,
    MarkDrain,
    MarkSequence,
    StopReason,
    Write,
)
from node_agent.core.journal.events import WorkFailed
from node_agent.core.journal.ports import Journal
from node_agent.core.session.lease_clock import AttemptId, SessionNumber
from node_agent.core.session.mailbox import Mailbox
from node_agent.core.session.messages import (
    CancelCommand,
    Command,
    DrainCommand,
    ExtendCommand,
    RunCommand,
    UndrainCommand,
)
from node_agent.errors import SessionLostError
from node_agent.limits import COMMANDS_WAITING_MAX

_RETRY_FULL_DISK_S: Final = 1.0
_REFUSALS: Final = {
    NotReady.SHUTTING_DOWN: ("AGENT_DRAINING", "the agent is about to stop"),
    NotReady.DRAINING: ("AGENT_DRAINING", "the agent drains and takes no new work"),
    NotReady.DISK_FULL: ("AGENT_DISK_FULL", "the agent's disk is full: free some space there"),
}
_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Plan:
    """What a batch writes, and what is done once it is written."""

    refusal: NotReady | None
    writes: list[Write] = field(default_factory=list)
    effects: "list[partial[None]]" = field(default_factory=list)
    new: dict[AttemptId, Attempt] = field(default_factory=dict)
    run_count: int = 0
    event_count: int = 0
    refused_ids: list[str] = field(default_factory=list)


class StoringIntake:
    """CommandIntake, and a Service."""

    name = "command-intake"

    def __init__(
        self,
        runner: AttemptRunner,
        drain: DrainControl,
        journal: Journal,
        reporter: Reporter,
        mailbox: Mailbox,
        last_sequence: int,
        *,
        retry_full_disk_s: float = _RETRY_FULL_DISK_S,
    ) -> None:
        self._runner = runner
        self._drain = drain
        self._journal = journal
        self._reporter = reporter
        self._mailbox = mailbox
        self._last_sequence = last_sequence
        self._retry_full_disk_s = retry_full_disk_s
        self._queue: deque[tuple[SessionNumber, Command]] = deque()
        self._wakeup = Wakeup()
        self._session_count = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False

    # --- CommandIntake. ---

    @property
    def last_sequence(self) -> int:
        """See CommandIntake."""
        return self._last_sequence

    def offer(self, session: SessionNumber, commands: Sequence[Command]) -> None:
        """See CommandIntake."""
        if len(self._queue) + len(commands) > COMMANDS_WAITING_MAX:
            raise SessionLostError(f"the server sent over {COMMANDS_WAITING_MAX} unstored commands")
        self._queue.extend((session, command) for command in commands)
        self._wakeup.set()

    async def new_session(self) -> None:
        """See CommandIntake."""
        self._session_count += 1
        self._queue.clear()
        await self._idle.wait()

    # --- A Service. ---

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def run(self) -> None:
        """Store what is offered until `stop`; raises what the journal raises."""
        while not self._stopping:
            await self._wakeup.wait()
            while self._queue and not self._stopping:
                if not await self._store_queued():
                    await asyncio.sleep(self._retry_full_disk_s)

    async def stop(self) -> None:
        """Store nothing more: the server keeps what is not acknowledged."""
        self._stopping = True
        self._wakeup.set()
        await self._idle.wait()

    async def _store_queued(self) -> bool:
        """Store everything that waits; False if the disk is full, and it waits on."""
        session_count = self._session_count
        batch = list(self._queue)
        self._queue.clear()
        self._idle.clear()
        try:
            await self._store(batch)
        except LocalDiskFullError as error:
            _log.error("commands_not_stored", count=len(batch), error=error.message)
            if session_count == self._session_count:
                self._queue.extendleft(reversed(batch))
            self._mailbox.want_heartbeat()
            return False
        finally:
            self._idle.set()
        return True

    # --- One batch. ---

    async def _store(self, batch: Sequence[tuple[SessionNumber, Command]]) -> None:
        plan = _Plan(self._drain.readiness.refusal())
        last_sequence = self._last_sequence
        for session, command in batch:
            if command.sequence > last_sequence:
                last_sequence = command.sequence
                self._plan(plan, session, command)
        if last_sequence > self._last_sequence:
            await failpoint("agent.inbox.before")
            await self._journal.submit([*plan.writes, MarkSequence(last_sequence)])
            self._last_sequence = last_sequence
            await failpoint("agent.inbox.after")
        # Also where everything was known: the server has missed an earlier ack.
        self._mailbox.ack(self._last_sequence, plan.refused_ids)
        self._runner.spend_credits(plan.run_count)
        for effect in plan.effects:
            effect()
        self._reporter.stored(plan.event_count)

    def _plan(self, plan: _Plan, session: SessionNumber, command: Command) -> None:
        match command:
            case RunCommand():
                self._plan_run(plan, session, command)
            case CancelCommand():
                self._plan_cancel(plan, command)
            case ExtendCommand():
                self._plan_extend(plan, command)
            case DrainCommand(_, _, grace_s):
                mark = DrainMark(grace_s)
                plan.refusal = plan.refusal or NotReady.DRAINING
                plan.writes.append(MarkDrain(mark))
                plan.effects.append(partial(self._drain.begin, mark))
            case UndrainCommand():
                if plan.refusal is NotReady.DRAINING:
                    plan.refusal = None
                plan.writes.append(MarkDrain(None))
                plan.effects.append(partial(self._drain.end))
            case _:
                _log.warning("command_unknown", command_id=command.command_id)

    def _plan_run(self, plan: _Plan, session: SessionNumber, command: RunCommand) -> None:
        plan.run_count += 1
        attempt_id = command.spec.attempt_id
        if self._find(plan, attempt_id) is not None:
            _log.warning("attempt_known", attempt_id=attempt_id, command_id=command.command_id)
            return
        attempt = self._runner.new_attempt(command)
        plan.new[attempt_id] = attempt
        refusal = self._refusal(plan, command)
        plan.writes.append(
            KeepAttempt(
                command.sequence, command.command_id, command.spec, is_started=attempt.is_inline
            )
        )
        if refusal is None:
            plan.effects.append(partial(self._runner.begin, attempt, session, command))
            return
        plan.writes.append(self._reporter.finishing(attempt, refusal))
        plan.event_count += 1
        plan.refused_ids.append(command.command_id)
        plan.effects.append(partial(self._runner.hold_refused, attempt))

    def _refusal(self, plan: _Plan, command: RunCommand) -> WorkFailed | None:
        spec = command.spec
        if plan.refusal is not None:
            return infrastructure_failure(*_REFUSALS[plan.refusal])
        if not self._runner.offers(spec.capability, spec.capability_version):
            return infrastructure_failure(
                "CAPABILITY_UNKNOWN",
                f"capability {spec.capability} {spec.capability_version} is not installed here",
            )
        return None

    def _plan_cancel(self, plan: _Plan, command: CancelCommand) -> None:
        attempt = self._find(plan, command.lease.attempt_id)
        if attempt is None or attempt.lease != command.lease or not attempt.is_unfinished:
            return
        known = command.stop_reason in StopReason.__members__
        reason = StopReason(command.stop_reason) if known else StopReason.CANCEL
        plan.writes.append(
            KeepOrder(
                command.sequence,
                command.command_id,
                CommandKind.CANCEL,
                command.lease.attempt_id,
                stop_reason=reason,
            )
        )
        plan.effects.append(partial(self._runner.order_stop, attempt, reason))

    def _plan_extend(self, plan: _Plan, command: ExtendCommand) -> None:
        attempt = self._find(plan, command.lease.attempt_id)
        if attempt is None or attempt.lease != command.lease or not attempt.is_unfinished:
            return
        plan.writes.append(
            KeepOrder(
                command.sequence,
                command.command_id,
                CommandKind.EXTEND,
                command.lease.attempt_id,
                extension_s=command.extension_s,
            )
        )
        plan.effects.append(partial(self._runner.extend, attempt, command.extension_s))

    def _find(self, plan: _Plan, attempt_id: AttemptId) -> Attempt | None:
        return plan.new.get(attempt_id) or self._runner.find(attempt_id)
