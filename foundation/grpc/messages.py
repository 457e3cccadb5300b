"""Messages at the border: their size before they are written, their fields for hashing."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from foundation.canonical_json import FieldValue, JsonText
from foundation.errors import MessageTooLargeError

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
_JSON_SUFFIX = "_json"


def check_message_size(
    message: Message, *, what: str, size_bytes_max: int = MESSAGE_BYTES_MAX
) -> int:
    """Return the encoded size in bytes; MessageTooLargeError if it is over the limit.

    To be called before a message is written to a stream: one that is over the peer's limit
    kills the whole stream, with everything else on it.
    """
    size_bytes = message.ByteSize()
    if size_bytes > size_bytes_max:
        raise MessageTooLargeError(
            f"{what} has {size_bytes} bytes, more than {size_bytes_max}: split it, or pass a "
            "reference instead",
            metadata={"size_bytes": str(size_bytes), "size_bytes_max": str(size_bytes_max)},
        )
    return size_bytes


def request_fields(
    message: Message, *, leave_out: Collection[str] = ()
) -> Mapping[str, FieldValue]:
    """Return a request's fields as sent, for `canonical_json.request_hash`.

    Unset fields are absent, also those set to their zero value, since proto3 cannot tell
    the two apart on the wire. String fields named `…_json` are hashed by content. Unknown
    fields are not covered. `leave_out` names top-level fields (the idempotency key).
    """
    return {
        field.name: _field_value(field, value)
        for field, value in message.ListFields()
        if field.name not in leave_out
    }


def _field_value(field: FieldDescriptor, value: object) -> FieldValue:
    if isinstance(value, Mapping):
        entry = field.message_type
        assert entry is not None
        values = entry.fields_by_name["value"]
        return {f"{key}": _single(values, item) for key, item in value.items()}
    if field.is_repeated:
        assert isinstance(value, Sequence)
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: FieldDescriptor, value: object) -> FieldValue:
    match value:
        case Message():
            return request_fields(value)
        case str() if field.name.endswith(_JSON_SUFFIX):
            return JsonText(value)
        case bool() | int() | str() | bytes():
            return value
        case float():
            return value.hex()
        case _:
            raise TypeError(f"{field.full_name} holds a {type(value).__name__}")
