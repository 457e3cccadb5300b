"""A wake-up for loops: says that there may be work, and remembers it while one is busy."""

import asyncio


class Wakeup:
    """One pending flag per loop, of the loop's own event loop and thread.

    `wait` clears the flag before it returns, hence before the query that the caller then
    makes: what is announced while that query runs is still pending at the next `wait`.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        """Start with nothing pending."""
        self._event = asyncio.Event()

    @property
    def pending(self) -> bool:
        """Whether a `set` has not been consumed yet."""
        return self._event.is_set()

    def set(self) -> None:
        """Announce work; many calls before the next `wait` count as one."""
        self._event.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Return True on a wake-up, False after `timeout_s` seconds (None: no limit).

        A time-out of zero or less still yields to the event loop once.
        """
        try:
            async with asyncio.timeout(None if timeout_s is None else max(timeout_s, 0.0)):
                await self._wait_yielding()
        except TimeoutError:
            # The flag may have risen in the same turn of the loop as the time-out.
            woken = self._event.is_set()
        else:
            woken = True
        self._event.clear()
        return woken

    async def _wait_yielding(self) -> None:
        if self._event.is_set():
            # Event.wait would return without yielding and a busy loop would starve others.
            await asyncio.sleep(0)
        await self._event.wait()
