"""From due times to tasks: plan, claim, create, settle. A death between any two repeats a step.

A run is claimed before its task is created and settled after; its task has the run's own
idempotency key. So a repetition finds the task that a dead replica created.
"""

import asyncio
from random import Random
from typing import Final

import structlog

from control_plane.core.schedules.ports import (
    Cancellation,
    ClaimedRun,
    DueRuns,
    Settlement,
    TaskStarter,
    Turn,
)
from foundation.backoff import BackoffPolicy
from foundation.errors import TdpError
from foundation.failpoints import failpoint

REASON_CHARS_MAX: Final = 1_000
RETRY_CAP_S: Final = 300.0
# Another replica is at work on what is due: look again soon, not at once.
_CONTENDED_S: Final = 0.2
_log = structlog.stdlib.get_logger(__name__)


class ScheduleRunner:
    """Handles what is due, on any number of replicas."""

    def __init__(
        self, runs: DueRuns, starter: TaskStarter, random: Random, *, retry_cap_s: float
    ) -> None:
        self._runs = runs
        self._starter = starter
        self._random = random
        self._backoff = BackoffPolicy(base_s=5.0, cap_s=min(RETRY_CAP_S, retry_cap_s))

    async def run_once(self) -> float | None:
        """Handle what is due; return the seconds until more is, None without anything."""
        await failpoint("schedule.plan.before")
        planned = await self._runs.plan()
        await failpoint("schedule.plan.after")
        turn = await self._runs.claim()
        await failpoint("schedule.claim.after")
        await self._cancel(turn)
        if turn.starts:
            settlements = await self._start(turn)
            await failpoint("schedule.settle.before")
            await self._runs.settle(turn.claim_id, settlements)
            await failpoint("schedule.settle.after")
        if planned or turn.starts:
            return 0.0
        due_in_s = await self._runs.due_in_s()
        return None if due_in_s is None else max(due_in_s, _CONTENDED_S)

    async def _start(self, turn: Turn) -> list[Settlement]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._started(run, turn), name=f"schedule-run-{run.run_id}")
                for run in turn.starts
            ]
        return [one.result() for one in tasks]

    async def _started(self, run: ClaimedRun, turn: Turn) -> Settlement:
        try:
            return Settlement(run.run_id, await self._starter.start(run))
        except TdpError as error:
            return self._refused(run, turn, error, retryable=error.retryable)
        except Exception as error:  # noqa: BLE001 - one run's defect must not hold up the others
            _log.warning("schedule_run_failed", run_id=run.run_id, exc_info=error)
            return self._refused(run, turn, error, retryable=True)

    def _refused(
        self, run: ClaimedRun, turn: Turn, error: Exception, *, retryable: bool
    ) -> Settlement:
        name = error.reason if isinstance(error, TdpError) else type(error).__name__
        reason = f"{name}: {error}"[:REASON_CHARS_MAX]
        if not retryable or turn.now >= run.retry_until:
            return Settlement(run.run_id, None, reason)
        delay_s = self._backoff.delay_s(run.failure_count + 1, self._random)
        return Settlement(run.run_id, None, reason, retry_in_s=delay_s)

    async def _cancel(self, turn: Turn) -> None:
        for one in turn.cancellations:
            await self._cancel_one(one)

    async def _cancel_one(self, cancellation: Cancellation) -> None:
        try:
            await self._starter.cancel(cancellation)
        except Exception as error:  # noqa: BLE001 - the run waits, and asks again at its next look
            _log.warning("schedule_cancel_failed", task_id=cancellation.task_id, exc_info=error)
