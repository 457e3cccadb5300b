"""The one rule that moves an order by what the platform tells; for callbacks and queries alike.

Events order by (run, sequence). Within a run the platform's end is final; a higher run replaces
everything. The newest known event is projected at once, whatever is missing before it; what
comes late only closes the gap, so that any order, loss and repetition of events ends where the
same events in order would have ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NewType

from business_gateway.core.errors import GatewayError
from business_gateway.core.orders.state_machine import (
    OrderStatus,
    is_final,
    next_status,
    order_status_of,
)
from foundation.errors import UnavailableError

EventId = NewType("EventId", str)

PROGRESS_MAX: Final = 100
RETRY_UNKNOWN_ORDER_S: Final = 5.0
_NEW_RUN: Final = "NEW_RUN"
_PROGRESS: Final = "PROGRESS"
_IDENTIFIED: Final = "IDENTIFIED"
_ACCEPTED: Final = "ACCEPTED"


class OrderUnknownError(GatewayError, UnavailableError):
    """No order here goes by the event's references (yet); deliver it again later."""

    reason = "ORDER_UNKNOWN"


class EventSource(StrEnum):
    """How an event came here."""

    CALLBACK = "CALLBACK"
    QUERY = "QUERY"


class Effect(StrEnum):
    """What an event did to its order."""

    PROJECTED = "PROJECTED"
    GAP = "GAP"
    NO_CHANGE = "NO_CHANGE"
    DUPLICATE = "DUPLICATE"
    LATE_FILL = "LATE_FILL"
    OLD_RUN = "OLD_RUN"
    FOREIGN = "FOREIGN"

    @property
    def is_history(self) -> bool:
        """Whether the event is merely kept: the order is as it was."""
        return self in _HISTORY


_HISTORY: Final = frozenset({Effect.DUPLICATE, Effect.LATE_FILL, Effect.OLD_RUN, Effect.FOREIGN})


@dataclass(frozen=True, slots=True)
class PlatformEvent:
    """One event of an execution, as the platform's envelope tells it.

    `platform_status` is one of the known set; empty where the event says nothing about it.
    `sequence` counts from 1 within the execution, `run` from 1 within the task. `external_ref`
    is empty or our order id. The JSON texts are exact copies, None where there is none.
    """

    event_id: EventId
    type: str
    task_id: str
    execution_id: str
    external_ref: str
    run: int
    sequence: int
    platform_status: str
    progress_percent: int
    diagnosis: str = ""
    diagnosis_json: str | None = None
    output_json: str | None = None
    envelope: str = ""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The platform's answer to SUBMIT (run 1) or RERUN: the ids it works under."""

    task_id: str
    execution_id: str
    run: int


@dataclass(frozen=True, slots=True)
class OrderProjection:
    """The part of an order that events move.

    Of the run `run` (0: none is known): `contiguous` is the highest sequence with all before
    it received, `projected` the highest received, `beyond` those received above `contiguous`,
    and `status_sequence` the one that `platform_status` comes from.
    """

    task_id: str | None = None
    execution_id: str | None = None
    run: int = 0
    contiguous: int = 0
    projected: int = 0
    beyond: frozenset[int] = frozenset()
    status_sequence: int = 0
    status: OrderStatus = OrderStatus.SUBMITTING
    platform_status: str = ""
    progress_percent: int = 0
    diagnosis: str = ""
    diagnosis_json: str | None = None
    output_json: str | None = None
    version: int = 1

    @property
    def has_gap(self) -> bool:
        """Whether an event before the newest one has not been received."""
        return self.projected > self.contiguous

    @property
    def is_over(self) -> bool:
        """Whether the platform has told the end of the current run."""
        meaning = order_status_of(self.platform_status)
        return meaning is not None and is_final(meaning)


@dataclass(frozen=True, slots=True)
class Projected:
    """What an event came to: the order after it, and the kind of change that clients see."""

    order: OrderProjection
    effect: Effect
    change_kind: str = ""


def project(order: OrderProjection, event: PlatformEvent) -> Projected:
    """Apply one event, from a callback or a query, in whatever order it came."""
    if _is_foreign(order, event):
        return Projected(order, Effect.FOREIGN)
    if event.run < order.run:
        return Projected(order, Effect.OLD_RUN)
    if event.run == order.run and _is_known(order, event.sequence):
        return Projected(order, Effect.DUPLICATE)
    begun = _begun(order, event.execution_id, event.run) if event.run > order.run else order
    late = event.sequence < begun.projected
    known = _identified(_spoken(begun, event), event.task_id, event.execution_id)
    moved = _received(known, event.sequence)
    if _visible(moved) == _visible(order):
        effect = Effect.LATE_FILL if late else Effect.NO_CHANGE
        return Projected(moved, effect)
    changed = replace(moved, version=order.version + 1)
    effect = Effect.GAP if changed.has_gap else Effect.PROJECTED
    return Projected(changed, effect, _change_kind(order, changed))


def accept(order: OrderProjection, acceptance: Acceptance) -> Projected:
    """Apply the answer to SUBMIT or RERUN, which may come after events of its run.

    It fills in what is still empty, and moves only an order of which nothing newer is known.
    """
    if order.task_id not in (None, acceptance.task_id):
        return Projected(order, Effect.FOREIGN)
    if acceptance.run < order.run:
        return Projected(order, Effect.OLD_RUN)
    moved = order
    if acceptance.run > order.run:
        moved = _begun(order, acceptance.execution_id, acceptance.run)
    elif order.status is OrderStatus.SUBMITTING and order.status_sequence == 0:
        # With a sequence it is SUBMITTING because the client asked for the next run.
        moved = replace(order, status=OrderStatus.PROCESSING)
    moved = _identified(moved, acceptance.task_id, acceptance.execution_id)
    if _visible(moved) == _visible(order):
        return Projected(order, Effect.NO_CHANGE)
    return Projected(replace(moved, version=order.version + 1), Effect.PROJECTED, _ACCEPTED)


def fold(order: OrderProjection, events: Iterable[PlatformEvent]) -> OrderProjection:
    """Apply events one after the other."""
    for event in events:
        order = project(order, event).order
    return order


def _is_foreign(order: OrderProjection, event: PlatformEvent) -> bool:
    """Whether another task, or another execution of this run, borrowed our reference."""
    if order.task_id is not None and order.task_id != event.task_id:
        return True
    known = order.execution_id is not None and event.run == order.run
    return known and order.execution_id != event.execution_id


def _is_known(order: OrderProjection, sequence: int) -> bool:
    return sequence <= order.contiguous or sequence in order.beyond


def _begun(order: OrderProjection, execution_id: str, run: int) -> OrderProjection:
    """Forget the run before; what was asked for here and concerns the new run stays."""
    # Without the platform's word, this run was asked for here, and the cancel was meant for it.
    stays = order.status is OrderStatus.CANCELING and not order.platform_status
    return OrderProjection(
        task_id=order.task_id,
        execution_id=execution_id,
        run=run,
        status=order.status if stays else OrderStatus.PROCESSING,
        version=order.version,
    )


def _spoken(order: OrderProjection, event: PlatformEvent) -> OrderProjection:
    """Take over what the event says of status, progress and result, if it is not out of date."""
    if order.is_over:
        return order
    meaning = order_status_of(event.platform_status)
    if meaning is not None and is_final(meaning):
        return _ended(order, event, meaning)
    if event.sequence > order.projected:
        progress = min(max(order.progress_percent, event.progress_percent), PROGRESS_MAX)
        order = replace(order, progress_percent=progress)
    if meaning is None or event.sequence <= order.status_sequence:
        return order
    return replace(
        order,
        status=next_status(order.status, meaning),
        platform_status=event.platform_status,
        status_sequence=event.sequence,
    )


def _ended(order: OrderProjection, event: PlatformEvent, meaning: OrderStatus) -> OrderProjection:
    """End the run; it also ends what a refused command of ours had left needing attention."""
    completed = meaning is OrderStatus.COMPLETED
    progress = max(order.progress_percent, event.progress_percent)
    return replace(
        order,
        status=meaning,
        platform_status=event.platform_status,
        status_sequence=event.sequence,
        progress_percent=PROGRESS_MAX if completed else min(progress, PROGRESS_MAX),
        diagnosis=event.diagnosis,
        diagnosis_json=event.diagnosis_json,
        output_json=event.output_json,
    )


def _identified(order: OrderProjection, task_id: str, execution_id: str) -> OrderProjection:
    """Fill in ids that are still empty."""
    return replace(
        order,
        task_id=order.task_id or task_id,
        execution_id=order.execution_id or execution_id,
    )


def _received(order: OrderProjection, sequence: int) -> OrderProjection:
    """Note a sequence, and close the gap as far as all is there."""
    beyond, contiguous = order.beyond | {sequence}, order.contiguous
    while contiguous + 1 in beyond:
        contiguous += 1
    return replace(
        order,
        contiguous=contiguous,
        projected=max(order.projected, sequence),
        beyond=frozenset(one for one in beyond if one > contiguous),
    )


def _visible(order: OrderProjection) -> tuple[object, ...]:
    """Return what a client may see of it."""
    return (
        order.task_id,
        order.execution_id,
        order.run,
        order.status,
        order.platform_status,
        order.progress_percent,
        order.diagnosis,
        order.diagnosis_json,
        order.output_json,
    )


def _change_kind(before: OrderProjection, after: OrderProjection) -> str:
    if after.run > before.run > 0:
        return _NEW_RUN
    if after.status is not before.status or after.platform_status != before.platform_status:
        return after.status.value
    return _PROGRESS if after.progress_percent != before.progress_percent else _IDENTIFIED
