"""Messages at the border: sizes refused in time, and fields taken for the request hash."""

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BytesValue

from foundation.canonical_json import JsonText, request_hash
from foundation.errors import InvalidArgumentError, MessageTooLargeError
from foundation.grpc.messages import check_message_size, request_fields

FIELD = descriptor_pb2.FieldDescriptorProto


def request_class() -> type[Message]:
    """Make a request message with every shape of field that ours have."""
    file = descriptor_pb2.FileDescriptorProto(name="q.proto", package="q", syntax="proto3")
    step = file.message_type.add(name="Step")
    step.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    step.field.add(name="input_json", number=2, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    create = file.message_type.add(name="Create")
    for number, (name, kind) in enumerate(
        {
            "request_id": FIELD.TYPE_STRING,
            "version": FIELD.TYPE_STRING,
            "input_json": FIELD.TYPE_STRING,
            "priority": FIELD.TYPE_INT64,
            "weight": FIELD.TYPE_DOUBLE,
            "digest": FIELD.TYPE_BYTES,
        }.items(),
        start=1,
    ):
        create.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL)
    create.field.add(
        name="steps",
        number=7,
        type=FIELD.TYPE_MESSAGE,
        label=FIELD.LABEL_REPEATED,
        type_name=".q.Step",
    )
    create.field.add(
        name="labels",
        number=8,
        type=FIELD.TYPE_MESSAGE,
        label=FIELD.LABEL_REPEATED,
        type_name=".q.Create.LabelsEntry",
    )
    entry = create.nested_type.add(name="LabelsEntry", options={"map_entry": True})
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("q.Create"))


CREATE = request_class()


def create(**changes: object) -> Message:
    """Make a request, with changes."""
    fields: dict[str, object] = {
        "request_id": "key-1",
        "input_json": '{"a": 1, "b": 2}',
        "priority": 5,
        "weight": 0.1,
        "digest": b"\x01",
        "steps": [{"key": "s", "input_json": "[1]"}],
        "labels": {"x": "1", "y": "2"},
    }
    return CREATE(**(fields | changes))


def digest(message: Message) -> bytes:
    """Hash a request without its idempotency key."""
    return request_hash("Create", request_fields(message, leave_out={"request_id"}))


def test_fields_are_taken_as_sent() -> None:
    """Every shape of field is taken; JSON is marked, the left-out one and unset ones are absent."""
    assert request_fields(create(), leave_out={"request_id"}) == {
        "input_json": JsonText('{"a": 1, "b": 2}'),
        "priority": 5,
        "weight": (0.1).hex(),
        "digest": b"\x01",
        "steps": [{"key": "s", "input_json": JsonText("[1]")}],
        "labels": {"x": "1", "y": "2"},
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"request_id": "key-2"},
        {"input_json": '{"b":2,"a":1}'},
        {"labels": {"y": "2", "x": "1"}},
        {"steps": [{"key": "s", "input_json": "[ 1 ]"}]},
        {"version": ""},
    ],
)
def test_the_same_request_has_the_same_hash(changes: dict[str, object]) -> None:
    """Another key, spelling, order of map entries or an explicit empty text is the same request."""
    assert digest(create(**changes)) == digest(create())


@pytest.mark.parametrize(
    "changes",
    [
        {"input_json": '{"a": 1.0, "b": 2}'},
        {"version": "1"},
        {"priority": 6},
        {"weight": 0.2},
        {"digest": b"\x02"},
        {"labels": {"x": "2", "y": "1"}},
        {"steps": []},
        {"steps": [{"key": "s", "input_json": "[2]"}]},
    ],
)
def test_another_request_has_another_hash(changes: dict[str, object]) -> None:
    """Any difference in content is another request."""
    assert digest(create(**changes)) != digest(create())


def test_broken_json_in_a_nested_field_is_named() -> None:
    """A nested JSON field that is no JSON is refused by its path."""
    with pytest.raises(InvalidArgumentError) as caught:
        digest(create(steps=[{"input_json": "{"}]))
    assert caught.value.field_violations[0].field == "steps[0].input_json"


def test_sizes_are_bounded_inclusively() -> None:
    """The limit itself passes; one byte more is refused with both numbers."""
    message = BytesValue(value=b"x" * 98)
    assert check_message_size(message, what="a result", size_bytes_max=100) == 100
    with pytest.raises(MessageTooLargeError, match="a result has 100 bytes, more than 99"):
        check_message_size(message, what="a result", size_bytes_max=99)
