"""How much of the relay one endpoint may hold, so that a dead one never holds up the others.

An endpoint that answers may have any number of deliveries under way. One that has not answered
for a moment may have a quarter of the relay, and one that failed since it last took something
only two deliveries: enough to notice that it is back.
"""

import asyncio
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from foundation.clock import Clock

SILENT_AFTER_S: Final = 0.25
ENDPOINTS_MAX: Final = 10_000


@dataclass(slots=True)
class _Endpoint:
    under_way: int = 0
    answered_at_s: float = float("-inf")
    failing: bool = False
    turned_away: bool = False
    heard_of: asyncio.Event = field(default_factory=asyncio.Event)


class EndpointLoads:
    """Counts deliveries under way for each endpoint of this replica, and knows which fail."""

    def __init__(self, clock: Clock, *, silent_max: int, failing_max: int) -> None:
        """Let a silent endpoint have `silent_max` deliveries under way, a failing `failing_max`."""
        self._clock = clock
        self._silent_max = silent_max
        self._failing_max = failing_max
        self._endpoints: dict[Hashable, _Endpoint] = {}

    async def begin(self, key: Hashable) -> bool:
        """Whether one more delivery may begin, which then counts until `ended`.

        Waits a moment for an endpoint that may be about to answer, so that a burst that meets
        one at rest is not put back.
        """
        known = self._endpoint(key)
        if not self._has_room(known) and not known.failing:
            known.heard_of.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(SILENT_AFTER_S):
                    await known.heard_of.wait()
        if not self._has_room(known):
            known.turned_away = True
            return False
        known.under_way += 1
        return True

    def is_failing(self, key: Hashable) -> bool:
        """Whether the endpoint failed since it last took something."""
        known = self._endpoints.get(key)
        return known is not None and known.failing

    def ended(self, key: Hashable, *, delivered: bool) -> bool:
        """Note what a delivery came to; True if those that were turned away may come again."""
        known = self._endpoints[key]
        known.under_way -= 1
        known.failing = not delivered
        known.heard_of.set()
        if not delivered:
            return False
        known.answered_at_s = self._clock.monotonic()
        again, known.turned_away = known.turned_away, False
        return again

    def _has_room(self, endpoint: _Endpoint) -> bool:
        if endpoint.failing:
            return endpoint.under_way < self._failing_max
        answered = self._clock.monotonic() - endpoint.answered_at_s <= SILENT_AFTER_S
        return answered or endpoint.under_way < self._silent_max

    def _endpoint(self, key: Hashable) -> _Endpoint:
        """Return what is known; endpoints at rest may be forgotten, which bounds their number."""
        if key not in self._endpoints and len(self._endpoints) >= ENDPOINTS_MAX:
            resting = [one for one, known in self._endpoints.items() if not known.under_way]
            for one in resting:
                del self._endpoints[one]
        return self._endpoints.setdefault(key, _Endpoint())
