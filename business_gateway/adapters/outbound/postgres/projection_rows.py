"""What a batch of news writes, as rows and as the columns of its one statement."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from business_gateway.core.callbacks.domain import Effect, OrderProjection, Projected
from business_gateway.core.callbacks.ports import Arrival
from business_gateway.core.orders.state_machine import OrderStatus, is_final

_STORED_EFFECTS: Final = {
    Effect.PROJECTED: "PROJECTED",
    Effect.GAP: "PROJECTED",
    Effect.NO_CHANGE: "NO_CHANGE",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One version of an order, with what made it."""

    order_id: str
    kind: str
    event_id: str | None
    order: OrderProjection

    @staticmethod
    def columns(changes: Sequence["Change"]) -> tuple[list[object], ...]:
        """Return the versions that were passed on the way, column by column."""
        return (
            [one.order_id for one in changes],
            [one.order.version for one in changes],
            [one.kind for one in changes],
            [one.event_id for one in changes],
            [one.order.status.value for one in changes],
            [one.order.platform_status for one in changes],
            [one.order.run for one in changes],
            [one.order.progress_percent for one in changes],
            [one.order.diagnosis for one in changes],
        )


@dataclass(slots=True)
class Line:
    """An order before and after a batch, with each version on the way."""

    order_id: str
    before: OrderProjection
    after: OrderProjection
    changes: list[Change] = field(default_factory=list)
    forgets_cancel: bool = False

    def move(self, projected: Projected, event_id: str | None) -> None:
        """Take over what one piece of news came to."""
        order = projected.order
        if order.run > self.after.run > 0 and order.status is not OrderStatus.CANCELING:
            # A cancel belongs to the run that it was asked for.
            self.forgets_cancel = True
        if order.version > self.after.version:
            self.changes.append(Change(self.order_id, projected.change_kind, event_id, order))
        self.after = order

    @staticmethod
    def columns(lines: Sequence["Line"]) -> tuple[list[object], ...]:
        """Return the orders after the batch, column by column."""
        last = [line.changes[-1] if line.changes else None for line in lines]
        return (
            [line.order_id for line in lines],
            [line.after.task_id for line in lines],
            [line.after.execution_id for line in lines],
            [line.after.run for line in lines],
            [line.after.contiguous for line in lines],
            [line.after.projected for line in lines],
            [line.after.status_sequence for line in lines],
            [line.after.status.value for line in lines],
            [line.after.platform_status for line in lines],
            [line.after.progress_percent for line in lines],
            [line.after.diagnosis for line in lines],
            [line.after.diagnosis_json for line in lines],
            [line.after.output_json for line in lines],
            [line.after.version for line in lines],
            [None if one is None else one.kind for one in last],
            [None if one is None else one.event_id for one in last],
            [line.forgets_cancel for line in lines],
            [is_final(line.after.status) for line in lines],
        )


@dataclass(slots=True)
class StoredEvent:
    """A new event, what it did, and how often it came within the batch."""

    order_id: str
    arrival: Arrival
    effect: Effect
    order_version: int
    arrivals: int = 1

    @staticmethod
    def columns(stored: Sequence["StoredEvent"]) -> tuple[list[object], ...]:
        """Return the events, column by column."""
        events = [one.arrival.event for one in stored]
        return (
            [one.event_id for one in events],
            [one.order_id for one in stored],
            [one.task_id for one in events],
            [one.execution_id for one in events],
            [one.run for one in events],
            [one.sequence for one in events],
            [one.type for one in events],
            [one.platform_status for one in events],
            [one.progress_percent for one in events],
            [one.envelope for one in events],
            [one.arrival.source.value for one in stored],
            [_STORED_EFFECTS.get(one.effect, "HISTORY") for one in stored],
            [one.order_version for one in stored],
            [one.arrivals for one in stored],
        )
