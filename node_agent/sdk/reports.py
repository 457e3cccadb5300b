"""Progress and signs of life of one attempt: from any thread, the latest wins, few messages."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from foundation.errors import TdpError

REPORT_INTERVAL_S: Final = 0.2
_MESSAGE_CHARACTERS_MAX = 200


class Reports:
    """Takes progress at any rate and passes the latest on, at most five times a second."""

    def __init__(
        self, progress: Callable[[int, str], Awaitable[None]], alive: Callable[[], Awaitable[None]]
    ) -> None:
        """Pass progress to one function and mere signs of life to the other; in a running loop."""
        self._send_progress = progress
        self._send_alive = alive
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._lock = threading.Lock()
        self._latest: tuple[int, str] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    def progress(self, percent: float, message: str) -> None:
        """Note progress; out of range is brought into 0 to 100. Safe in any thread."""
        bounded = max(0, min(100, int(percent)))
        with self._lock:
            self._latest = bounded, message[:_MESSAGE_CHARACTERS_MAX]
        self.alive()

    def alive(self) -> None:
        """Note that the work goes on. Safe in any thread."""
        if not self._wanted.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Pass on in a task of the group from the first report on; most short work has none."""
        self._group = group

    def end(self) -> None:
        """Pass on nothing more."""
        self._group = None
        if self._task is not None:
            self._task.cancel()

    def _wake(self) -> None:
        self._wanted.set()
        if self._task is None and self._group is not None:
            self._task = self._group.create_task(self._pass_on(), name="reports")

    async def _pass_on(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            with self._lock:
                latest, self._latest = self._latest, None
            # Reports are for people and watchdogs: one that is refused fails no work.
            with contextlib.suppress(TdpError):
                await (self._send_alive() if latest is None else self._send_progress(*latest))
            await asyncio.sleep(REPORT_INTERVAL_S)
