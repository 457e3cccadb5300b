"""Loops that sleep until work is due or announced, and outlive transient errors."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random

import structlog

from foundation.backoff import BackoffPolicy
from foundation.wakeup import Wakeup

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoopConfig:
    """How a loop sleeps and fails.

    `sleep_s_max` is the sweep: the longest it sleeps without a wake-up or due time. After an
    error it waits by `backoff`; an error of `fatal_errors` ends the loop, and so the process.
    """

    name: str
    sleep_s_max: float = 30.0
    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    fatal_errors: tuple[type[Exception], ...] = ()


class DueLoop:
    """Calls `run_once` at once, then whenever it is due or woken; a Service.

    `run_once` does everything that is due and returns the seconds until the next due time
    (0: again at once; None: not known). A run in progress is never cancelled by `stop`.
    """

    def __init__(
        self,
        config: LoopConfig,
        run_once: Callable[[], Awaitable[float | None]],
        wakeup: Wakeup,
        random: Random,
    ) -> None:
        self._config = config
        self._run_once = run_once
        self._wakeup = wakeup
        self._random = random
        self._running = False
        self._stopping = asyncio.Event()
        self._finished = asyncio.Event()

    @property
    def name(self) -> str:
        """Name of the loop's task."""
        return self._config.name

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def run(self) -> None:
        """Loop until stopped; raises only `fatal_errors`."""
        self._running = True
        failures = 0
        try:
            while not self._stopping.is_set():
                failures = await self._turn(failures)
        finally:
            self._finished.set()

    async def stop(self) -> None:
        """Let the run in progress finish, and return when the loop has ended."""
        self._stopping.set()
        self._wakeup.set()
        if self._running:
            await self._finished.wait()

    async def _turn(self, failures: int) -> int:
        try:
            due_s = await self._run_once()
        except self._config.fatal_errors:
            raise
        except Exception as error:  # noqa: BLE001 - outliving any error is the loop's purpose
            await self._back_off(failures + 1, error)
            return failures + 1
        limit_s = self._config.sleep_s_max
        await self._wakeup.wait(limit_s if due_s is None else min(due_s, limit_s))
        return 0

    async def _back_off(self, failures: int, error: Exception) -> None:
        delay_s = self._config.backoff.delay_s(failures, self._random)
        _log.warning(
            "loop_failed",
            loop=self.name,
            failures=failures,
            retry_in_s=round(delay_s, 3),
            exc_info=error,
        )
        # Wake-ups do not shorten this: work that keeps coming would turn it into a busy loop.
        try:
            async with asyncio.timeout(delay_s):
                await self._stopping.wait()
        except TimeoutError:
            pass


def periodic(
    config: LoopConfig, run_once: Callable[[], Awaitable[None]], *, period_s: float, random: Random
) -> DueLoop:
    """Make a loop that runs at once and then every `period_s` seconds after the last end."""

    async def run_and_wait() -> float:
        await run_once()
        return period_s

    return DueLoop(
        replace(config, sleep_s_max=max(config.sleep_s_max, period_s)),
        run_and_wait,
        Wakeup(),
        random,
    )
