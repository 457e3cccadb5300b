"""Facts behind gauges, asked for when they are scraped and no more often than they may cost."""

import asyncio
from collections.abc import Awaitable, Callable

from foundation.clock import Clock


class Refreshed:
    """Calls `refresh` when a scrape finds the last one older than `age_s_max`.

    Nobody who scrapes costs nothing. Scrapes that come together share one call; one that fails is
    tried again by the next scrape.
    """

    def __init__(
        self, refresh: Callable[[], Awaitable[None]], clock: Clock, age_s_max: float
    ) -> None:
        self._refresh = refresh
        self._clock = clock
        self._age_s_max = age_s_max
        self._lock = asyncio.Lock()
        self._fresh_until_s: float | None = None

    async def ensure(self) -> None:
        """Refresh if it is time; raises what `refresh` raises."""
        async with self._lock:
            now_s = self._clock.monotonic()
            if self._fresh_until_s is not None and now_s < self._fresh_until_s:
                return
            await self._refresh()
            self._fresh_until_s = self._clock.monotonic() + self._age_s_max
