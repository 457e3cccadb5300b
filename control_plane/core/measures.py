"""What use cases let an operator measure while they work, whoever listens."""

from typing import Protocol


class Measures(Protocol):
    """Told of work as it happens; must be quick and never raise."""

    def batch(self, hop: str, size: int) -> None:
        """Note that one transaction of a hop (advance, dispatch, inbox) served `size` items."""
        ...

    def dispatch_delay(self, seconds: float) -> None:
        """Note how long a request waited from its making to the attempt that serves it."""
        ...


class NoMeasures:
    """Nobody listens."""

    def batch(self, hop: str, size: int) -> None:
        """See Measures."""

    def dispatch_delay(self, seconds: float) -> None:
        """See Measures."""
