r"""The business states of an order, and what the platform's states mean to the business.

    SUBMITTING --> PROCESSING --> COMPLETED
        |   \          |    \---> NEEDS_ATTENTION --> CANCELED (only if never submitted)
        |    \         v
        |     `-> CANCELING --> CANCELED | COMPLETED | NEEDS_ATTENTION
        `-------> CANCELED (withdrawn before submission)

COMPLETED, NEEDS_ATTENTION and CANCELED are final for a run; a new run begins with SUBMITTING
(asked for here) or, seen first in an event of a higher run, with whatever that event says.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from business_gateway.core.errors import TransitionForbiddenError


class OrderStatus(StrEnum):
    """Where an order stands for the business."""

    SUBMITTING = "SUBMITTING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    NEEDS_ATTENTION = "NEEDS_ATTENTION"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"


FINAL_STATUSES: Final = frozenset(
    {OrderStatus.COMPLETED, OrderStatus.NEEDS_ATTENTION, OrderStatus.CANCELED}
)

_MOVES: Final[Mapping[OrderStatus, frozenset[OrderStatus]]] = {
    OrderStatus.SUBMITTING: frozenset(OrderStatus) - {OrderStatus.SUBMITTING},
    OrderStatus.PROCESSING: FINAL_STATUSES | {OrderStatus.CANCELING},
    OrderStatus.CANCELING: FINAL_STATUSES,
    OrderStatus.COMPLETED: frozenset(),
    OrderStatus.NEEDS_ATTENTION: frozenset(),
    OrderStatus.CANCELED: frozenset(),
}

# The platform's states, by their names on the wire; no other module of the business knows them.
_MEANINGS: Final[Mapping[str, OrderStatus]] = {
    "CREATED": OrderStatus.PROCESSING,
    "QUEUED": OrderStatus.PROCESSING,
    "RUNNING": OrderStatus.PROCESSING,
    "CANCELING": OrderStatus.CANCELING,
    "SUCCEEDED": OrderStatus.COMPLETED,
    "FAILED": OrderStatus.NEEDS_ATTENTION,
    "TIMED_OUT": OrderStatus.NEEDS_ATTENTION,
    "CANCELED": OrderStatus.CANCELED,
}
PLATFORM_STATUSES: Final = frozenset(_MEANINGS)


def is_final(status: OrderStatus) -> bool:
    """Whether nothing changes any more within the current run."""
    return status in FINAL_STATUSES


def order_status_of(platform_status: str) -> OrderStatus | None:
    """Return what a platform state means; None for an empty one, which says nothing.

    KeyError for an unknown one: check against PLATFORM_STATUSES where it comes in.
    """
    return _MEANINGS[platform_status] if platform_status else None


def next_status(current: OrderStatus, target: OrderStatus, *, new_run: bool = False) -> OrderStatus:
    """Return the status after a move: `target`, or `current` where the move is no progress.

    Within a run a final status stays and nothing goes back (a cancel that was asked for here
    outlives late news of the platform's work); a new run takes any status.
    """
    if new_run or target in _MOVES[current]:
        return target
    return current


def check_order_move(
    current: OrderStatus, target: OrderStatus, *, never_submitted: bool = False
) -> None:
    """Raise TransitionForbiddenError unless the table has the move or it is a repeat.

    An order that the platform finally refused (`never_submitted`) may still be cancelled.
    """
    allowed = _MOVES[current]
    if never_submitted and current is OrderStatus.NEEDS_ATTENTION:
        allowed |= {OrderStatus.CANCELING, OrderStatus.CANCELED}
    if current is not target and target not in allowed:
        raise TransitionForbiddenError(f"order cannot move from {current} to {target}")
