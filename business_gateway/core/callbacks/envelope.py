"""From the bytes of a CloudEvents envelope to an event, each check with an error of its own."""

import json
import re
from collections.abc import Mapping
from typing import Final

from business_gateway.core.callbacks.domain import PROGRESS_MAX, EventId, PlatformEvent
from business_gateway.core.callbacks.exact_json import JsonMalformedError, members
from business_gateway.core.errors import GatewayError
from business_gateway.core.orders.state_machine import PLATFORM_STATUSES
from foundation.errors import InvalidArgumentError, MessageTooLargeError
from foundation.ids import NIL_ID, is_id

BODY_BYTES_MAX: Final = 1024 * 1024
DIAGNOSIS_CHARS_MAX: Final = 2_000
SPECVERSION: Final = "1.0"
_TYPE_CHARS_MAX: Final = 200
_SHOWN_CHARS: Final = 80
_RUN_MAX: Final = 2**31 - 1
_SEQUENCE_MAX: Final = 2**63 - 1
# What PostgreSQL cannot keep as text.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_STATUS_OF_TYPE: Final[Mapping[str, str]] = {
    "execution.created": "CREATED",
    "execution.started": "RUNNING",
    "execution.progress": "RUNNING",
    "execution.canceling": "CANCELING",
    "execution.succeeded": "SUCCEEDED",
    "execution.failed": "FAILED",
    "execution.timed_out": "TIMED_OUT",
    "execution.canceled": "CANCELED",
}


class CallbackTooLargeError(GatewayError, MessageTooLargeError):
    """The envelope has more than 1 MiB; it was not read."""

    reason = "CALLBACK_TOO_LARGE"


class CallbackMalformedError(GatewayError, InvalidArgumentError):
    """The body is not a JSON object in UTF-8 with the members of an execution event."""

    reason = "CALLBACK_MALFORMED"


class CallbackSpecversionError(GatewayError, InvalidArgumentError):
    """The envelope is not of CloudEvents 1.0."""

    reason = "CALLBACK_SPECVERSION_UNKNOWN"


class CallbackTypeError(GatewayError, InvalidArgumentError):
    """The event's type is empty or too long."""

    reason = "CALLBACK_TYPE_INVALID"


class CallbackIdError(GatewayError, InvalidArgumentError):
    """An id of the event is not a UUID, or the nil UUID."""

    reason = "CALLBACK_ID_INVALID"


class CallbackApplicationError(GatewayError, InvalidArgumentError):
    """The event is about another application's work."""

    reason = "CALLBACK_APPLICATION_FOREIGN"


class CallbackNumberError(GatewayError, InvalidArgumentError):
    """Sequence, run or progress is no integer within its range; sequences and runs start at 1."""

    reason = "CALLBACK_NUMBER_INVALID"


class CallbackStatusError(GatewayError, InvalidArgumentError):
    """The status is neither empty nor one that is known."""

    reason = "CALLBACK_STATUS_UNKNOWN"


def parse_envelope(body: bytes, application_id: str) -> PlatformEvent:
    """Read an envelope about our application's work.

    Raises the errors above; a message names the field and its value.
    """
    if len(body) > BODY_BYTES_MAX:
        raise CallbackTooLargeError(
            f"the envelope has {len(body)} bytes, more than {BODY_BYTES_MAX}: it cannot be taken"
        )
    text = _decoded(body)
    head = _members(text, "")
    data = _members(head.get("data", ""), "data")
    _check_specversion(head)
    _check_application(data, application_id)
    return _event(text, head, data)


def _event(text: str, head: Mapping[str, str], data: Mapping[str, str]) -> PlatformEvent:
    kind = _type(head)
    status = _status(data) or _STATUS_OF_TYPE.get(kind, "")
    failure_json = _document(data, "failure")
    return PlatformEvent(
        event_id=EventId(_id(head, "id")),
        type=kind,
        task_id=_id(data, "task_id", "data."),
        execution_id=_id(data, "execution_id", "data."),
        external_ref=_external_ref(data),
        run=_number(data, "run", 1, _RUN_MAX),
        sequence=_number(data, "sequence", 1, _SEQUENCE_MAX),
        platform_status=status,
        progress_percent=_number(data, "progress", 0, PROGRESS_MAX),
        diagnosis=_diagnosis(failure_json, status),
        diagnosis_json=failure_json,
        output_json=_document(data, "output"),
        envelope=text,
    )


def _decoded(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CallbackMalformedError(
            f"the body is not UTF-8 at byte {error.start}: send the envelope as UTF-8 JSON"
        ) from None


def _members(text: str, field: str) -> dict[str, str]:
    try:
        return members(text)
    except JsonMalformedError as error:
        raise CallbackMalformedError.of_field(
            field or "body", f"is no JSON object: {error}"
        ) from None


def _check_specversion(head: Mapping[str, str]) -> None:
    found = _value(head, "specversion")
    if found != SPECVERSION:
        raise CallbackSpecversionError.of_field(
            "specversion", f"is {_shown(found)}: only {SPECVERSION} is understood"
        )


def _check_application(data: Mapping[str, str], application_id: str) -> None:
    found = _id(data, "application_id", "data.")
    if found != application_id.lower():
        raise CallbackApplicationError.of_field(
            "data.application_id", f"is {found}, which is not this gateway's application"
        )


def _id(members_: Mapping[str, str], key: str, prefix: str = "") -> str:
    found = _value(members_, key)
    if not isinstance(found, str) or not is_id(found):
        nil = (
            "the nil UUID, which names nothing" if found == NIL_ID else f"{_shown(found)}, no UUID"
        )
        raise CallbackIdError.of_field(f"{prefix}{key}", f"is {nil}: send the real id")
    return found.lower()


def _external_ref(data: Mapping[str, str]) -> str:
    found = _value(data, "external_ref")
    if found is None:
        return ""
    if not isinstance(found, str):
        raise CallbackMalformedError.of_field("data.external_ref", "is no string")
    # Our order ids are UUIDs; whatever else it says, no order of ours goes by it.
    return found.lower() if is_id(found) else found[:200]


def _status(data: Mapping[str, str]) -> str:
    found = _value(data, "status")
    if found is None or found == "":
        return ""
    if not isinstance(found, str) or found not in PLATFORM_STATUSES:
        known = ", ".join(sorted(PLATFORM_STATUSES))
        raise CallbackStatusError.of_field(
            "data.status", f"is {_shown(found)}: it may be empty or one of {known}"
        )
    return found


def _number(data: Mapping[str, str], key: str, least: int, most: int) -> int:
    found = _value(data, key)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise CallbackNumberError.of_field(
            f"data.{key}", f"is {_shown(found)}: send an integer from {least} to {most}"
        )
    return found


def _type(head: Mapping[str, str]) -> str:
    found = _value(head, "type")
    fits = isinstance(found, str) and 1 <= len(found) <= _TYPE_CHARS_MAX
    if not isinstance(found, str) or not fits or _UNSTORABLE.search(found):
        raise CallbackTypeError.of_field(
            "type", f"is {_shown(found)}: name the event in 1 to {_TYPE_CHARS_MAX} characters"
        )
    return found


def _document(data: Mapping[str, str], key: str) -> str | None:
    """Return a member's exact text, None where it is missing or null."""
    found = data.get(key, "null")
    return None if found == "null" else found


def _diagnosis(failure_json: str | None, status: str) -> str:
    """Say in one sentence why the work failed, for people."""
    if failure_json is None:
        return ""
    failure = json.loads(failure_json, parse_int=str, parse_float=str)
    if not isinstance(failure, dict):
        return f"The platform reported {status or 'a failure'}."
    step = f" (step {failure['step_key']})" if failure.get("step_key") else ""
    # That a step failed says less than why it did.
    if isinstance(cause := failure.get("cause"), dict) and cause.get("reason"):
        failure = cause
    reason, message = failure.get("reason") or status, failure.get("message") or "no message"
    return _UNSTORABLE.sub("?", f"{reason}{step}: {message}")[:DIAGNOSIS_CHARS_MAX]


def _value(members_: Mapping[str, str], key: str) -> object:
    text = members_.get(key)
    if text is None:
        return None
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CallbackMalformedError.of_field(key, f"cannot be read: {error}") from None
    return found


def _shown(found: object) -> str:
    return "missing" if found is None else repr(found)[:_SHOWN_CHARS]
