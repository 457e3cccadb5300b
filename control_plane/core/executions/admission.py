"""Admission: how many executions of one application may wait at once."""

from dataclasses import dataclass
from typing import Final

from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.ports import QueueDepths
from foundation.clock import Clock
from foundation.errors import ResourceExhaustedError

COUNT_TTL_S: Final = 1.0
"""How old a count may be: the bound is kept within what one second admits."""


class AdmissionRefusedError(ControlPlaneError, ResourceExhaustedError):
    """The application has too many queued executions; nothing was stored."""

    reason = "QUEUE_FULL"


@dataclass(slots=True)
class _Count:
    queued: int
    until_s: float


class Admission:
    """Bounds the queued executions of each application.

    The count is read once a second and raised by each admission in between, so that a
    burst costs no query per task.
    """

    def __init__(self, depths: QueueDepths, clock: Clock, queued_executions_max: int) -> None:
        self._depths = depths
        self._clock = clock
        self._queued_max = queued_executions_max
        self._counts: dict[str, _Count] = {}

    async def admit(self, application_id: str) -> None:
        """Count one more execution, or raise AdmissionRefusedError."""
        now_s = self._clock.monotonic()
        count = self._counts.get(application_id)
        if count is None or count.until_s <= now_s:
            queued = await self._depths.queued_executions(application_id, self._queued_max)
            count = self._counts[application_id] = _Count(queued, now_s + COUNT_TTL_S)
        if count.queued >= self._queued_max:
            raise AdmissionRefusedError(
                f"{count.queued} executions of this application are queued, at most "
                f"{self._queued_max} may be: send the request again later",
                retry_delay_s=COUNT_TTL_S,
            )
        count.queued += 1
