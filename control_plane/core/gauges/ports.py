"""What the gauges of a control plane are read from."""

from typing import Protocol

from control_plane.core.gauges.domain import GaugeFacts


class GaugeReader(Protocol):
    """Counts what is open; its cost grows with what is open and never with history."""

    async def facts(self) -> GaugeFacts:
        """Count everything once."""
        ...
