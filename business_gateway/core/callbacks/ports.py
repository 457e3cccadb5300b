"""What following the platform needs from outside."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from business_gateway.core.callbacks.domain import (
    Acceptance,
    Effect,
    EventSource,
    PlatformEvent,
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that came here, and how."""

    event: PlatformEvent
    source: EventSource = EventSource.CALLBACK


@dataclass(frozen=True, slots=True)
class Answer:
    """The platform's answer to a command about one of our orders."""

    order_id: str
    acceptance: Acceptance


News: TypeAlias = Arrival | Answer


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a piece of news did, once it is durable."""

    order_id: str
    effect: Effect
    has_gap: bool

    @property
    def changed(self) -> bool:
        """Whether the order has a new version."""
        return self.effect in {Effect.PROJECTED, Effect.GAP}


class NewsStore(Protocol):
    """The callback inbox and the orders that it moves."""

    async def add(self, news: Sequence[News]) -> Sequence[Outcome | None]:
        """Store and project all of it, in arrival order and in one transaction.

        None where no order goes by the references: of that nothing is stored. A failure of
        the database raises its TdpError, and then nothing is stored at all.
        """
        ...


class Inbox(Protocol):
    """Takes news one at a time, and shares transactions behind the scenes."""

    async def add(self, news: News) -> Outcome | None:
        """Return once it is durable; None where no order goes by its references."""
        ...


class OrderListener(Protocol):
    """Is told, after the commit, what happened to orders."""

    def announce(self, order_id: str) -> None:
        """An order has a new version."""
        ...


class GapListener(Protocol):
    """Is told, after the commit, which orders miss events."""

    def gap_seen(self, order_id: str) -> None:
        """An event of the order was received while one before it is missing."""
        ...


@dataclass(frozen=True, slots=True)
class StaleOrder:
    """An order that has a gap or was quiet for too long, and where to ask on from."""

    order_id: str
    task_id: str
    execution_id: str
    run: int
    contiguous: int


class StaleOrderStore(Protocol):
    """Orders that the platform has to be asked about."""

    async def take_stale(self, quiet_s: float, limit: int) -> Sequence[StaleOrder]:
        """Take orders that were quiet for `quiet_s`, longest first; they count as heard of now.

        Under way, or with a gap. Two replicas never take the same one at a time.
        """
        ...

    async def take_gaps(self, order_ids: Sequence[str]) -> Sequence[StaleOrder]:
        """Take those of the orders that still have a gap; they count as heard of now."""
        ...

    async def next_stale_in_s(self, quiet_s: float) -> float | None:
        """Return the seconds until an order will have been quiet for `quiet_s`; None: none can."""
        ...

    async def close_gap(self, order_id: str, run: int) -> None:
        """Give up what is missing of a finished run that the platform no longer knows."""
        ...


@dataclass(frozen=True, slots=True)
class EventPage:
    """Envelopes in order of their sequence, and the newest sequence of the execution."""

    envelopes: Sequence[str]
    last_sequence: int


@dataclass(frozen=True, slots=True)
class CurrentRun:
    """The platform's current execution of a task."""

    execution_id: str
    run: int
    last_sequence: int


class PlatformHistory(Protocol):
    """What the platform can be asked about its work for us.

    Raises NotFoundError for what it does not know (any more), UnavailableError and other
    TdpErrors when it cannot be asked now.
    """

    async def current_run(self, task_id: str) -> CurrentRun:
        """Return the task's execution with the highest run."""
        ...

    async def events_after(self, execution_id: str, sequence: int) -> EventPage:
        """Read the next events after a sequence."""
        ...
