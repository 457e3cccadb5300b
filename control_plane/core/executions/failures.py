"""What went wrong, as data: the record kept on attempts, steps and executions."""

import json
from dataclasses import dataclass
from typing import Any, Final

from control_plane.core.errors import DocumentInvalidError

MESSAGE_CHARS_MAX: Final = 4_000


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed.

    `reason` is UPPER_SNAKE, for programs; `message` is for people. `step_key` and
    `item_index` (-1: no for_each) name the step, where there is one; `cause` is what
    lies beneath.
    """

    reason: str
    message: str
    step_key: str = ""
    item_index: int = -1
    retryable: bool = False
    cause: "Failure | None" = None

    def to_json(self) -> str:
        """Return the record as JSON text, empty fields left out."""
        return json.dumps(_to_document(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Failure":
        """Read back what `to_json` wrote; raise DocumentInvalidError for anything else."""
        try:
            return _from_document(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DocumentInvalidError(
                f"{text[:200]!r} is no failure record: expected an object with reason and message"
            ) from error


def _to_document(failure: Failure) -> dict[str, Any]:
    document: dict[str, Any] = {
        "reason": failure.reason,
        "message": failure.message[:MESSAGE_CHARS_MAX],
    }
    if failure.step_key:
        document["step_key"] = failure.step_key
    if failure.item_index >= 0:
        document["item_index"] = failure.item_index
    if failure.retryable:
        document["retryable"] = True
    if failure.cause is not None:
        document["cause"] = _to_document(failure.cause)
    return document


def _from_document(document: dict[str, Any]) -> Failure:
    cause = document.get("cause")
    return Failure(
        reason=str(document["reason"]),
        message=str(document["message"]),
        step_key=str(document.get("step_key", "")),
        item_index=int(document.get("item_index", -1)),
        retryable=bool(document.get("retryable", False)),
        cause=None if cause is None else _from_document(cause),
    )
