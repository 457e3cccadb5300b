"""Envelopes are read exactly, and each thing that may be wrong has its own error; F23."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from business_gateway.core.callbacks.envelope import (
    BODY_BYTES_MAX,
    CallbackApplicationError,
    CallbackIdError,
    CallbackMalformedError,
    CallbackNumberError,
    CallbackSpecversionError,
    CallbackStatusError,
    CallbackTooLargeError,
    CallbackTypeError,
    parse_envelope,
)
from business_gateway.core.callbacks.exact_json import JsonMalformedError, members
from foundation.errors import TdpError

APPLICATION = "0190cccc-0000-7000-8000-000000000001"
TASK = "0190cccc-0000-7000-8000-000000000002"
EXECUTION = "0190cccc-0000-7000-8000-000000000003"
ORDER = "0190cccc-0000-7000-8000-000000000004"
EVENT = "0190cccc-0000-7000-8000-000000000005"
NIL = "00000000-0000-0000-0000-000000000000"

Change = Callable[[dict[str, Any]], object]


def document(**data: object) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": EVENT,
        "source": "tdp://control-plane",
        "type": "execution.started",
        "subject": EXECUTION,
        "time": "2026-01-01T00:00:00Z",
        "data": {
            "application_id": APPLICATION,
            "task_id": TASK,
            "execution_id": EXECUTION,
            "external_ref": ORDER,
            "sequence": 2,
            "run": 1,
            "status": "RUNNING",
            "progress": 5,
            "output": None,
            "failure": None,
            **data,
        },
    }


def body(**data: object) -> bytes:
    return json.dumps(document(**data)).encode()


def test_an_envelope_becomes_the_event_it_tells_of() -> None:
    """Ids, place, status and progress are taken over; the text is kept whole."""
    event = parse_envelope(body(), APPLICATION)
    assert (event.event_id, event.task_id, event.execution_id) == (EVENT, TASK, EXECUTION)
    assert (event.external_ref, event.run, event.sequence) == (ORDER, 1, 2)
    assert (event.platform_status, event.progress_percent) == ("RUNNING", 5)
    assert (event.output_json, event.diagnosis) == (None, "")
    assert event.envelope.encode() == body()


def test_output_and_failure_keep_every_digit() -> None:
    """Documents are copied as they were written, whatever numbers are in them."""
    output = '{"n":1.10,"big":12345678901234567890.000,"e":1e400, "deep":[{"x":"\\u0000"}]}'
    failure = '{"reason":"ARCHIVE_ENCRYPTED","message":"no \\u0000 key","step_key":"clean"}'
    text = body(status="FAILED").decode()
    text = text.replace('"output": null', f'"output":{output}')
    text = text.replace('"failure": null', f'"failure" :  {failure}')
    event = parse_envelope(text.encode(), APPLICATION)
    assert event.output_json == output
    assert event.diagnosis_json == failure
    assert event.diagnosis == "ARCHIVE_ENCRYPTED (step clean): no ? key"


def test_the_diagnosis_is_what_made_the_step_fail() -> None:
    """The cause's reason and words, since STEP_FAILED says nothing to who sent the archive."""
    cause = {"reason": "ARCHIVE_CRC_MISMATCH", "message": "entry 'b.txt' is damaged"}
    failure = {"reason": "STEP_FAILED", "message": "step clean failed: …", "step_key": "clean"}
    event = parse_envelope(body(status="FAILED", failure=failure | {"cause": cause}), APPLICATION)
    assert event.diagnosis == "ARCHIVE_CRC_MISMATCH (step clean): entry 'b.txt' is damaged"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d.pop("specversion"), CallbackSpecversionError),
        (lambda d: d.update(specversion="0.3"), CallbackSpecversionError),
        (lambda d: d.update(type=""), CallbackTypeError),
        (lambda d: d.update(type="\x00"), CallbackTypeError),
        (lambda d: d.pop("type"), CallbackTypeError),
        (lambda d: d.update(id="7"), CallbackIdError),
        (lambda d: d.update(id=NIL), CallbackIdError),
        (lambda d: d.pop("id"), CallbackIdError),
        (lambda d: d["data"].update(task_id=NIL), CallbackIdError),
        (lambda d: d["data"].update(execution_id="x"), CallbackIdError),
        (lambda d: d["data"].update(application_id=TASK), CallbackApplicationError),
        (lambda d: d["data"].update(application_id=NIL), CallbackIdError),
        (lambda d: d["data"].update(sequence=0), CallbackNumberError),
        (lambda d: d["data"].update(sequence=2**63), CallbackNumberError),
        (lambda d: d["data"].update(sequence=True), CallbackNumberError),
        (lambda d: d["data"].update(sequence=1.5), CallbackNumberError),
        (lambda d: d["data"].update(run=0), CallbackNumberError),
        (lambda d: d["data"].pop("run"), CallbackNumberError),
        (lambda d: d["data"].update(progress=101), CallbackNumberError),
        (lambda d: d["data"].update(progress=-1), CallbackNumberError),
        (lambda d: d["data"].update(status="PAUSED"), CallbackStatusError),
        (lambda d: d["data"].update(status=3), CallbackStatusError),
        (lambda d: d["data"].update(external_ref=3), CallbackMalformedError),
        (lambda d: d.update(data="text"), CallbackMalformedError),
        (lambda d: d.pop("data"), CallbackMalformedError),
    ],
)
def test_each_check_has_its_own_error(change: Change, error: type[TdpError]) -> None:
    """One wrong field raises the error of that check and names the field."""
    changed = document()
    change(changed)
    with pytest.raises(error) as caught:
        parse_envelope(json.dumps(changed).encode(), APPLICATION)
    assert caught.value.reason == error.reason
    assert caught.value.field_violations


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":1} x',
        b'{"a":1,}',
        b"{1:2}",
        b"\xff{}",
        b'{"a":"\x00"}',
        b'{"a":' + b"[" * 100_000 + b"}",
        b'{"a":' + b'{"b":' * 5_000 + b"1" + b"}" * 5_001,
        b'{"specversion":"1.0","data":{"sequence":' + b"9" * 5_000 + b"}}",
    ],
)
def test_what_is_no_envelope_is_malformed(text: bytes) -> None:
    """Broken, doubled, endless or deeply nested JSON is refused and nothing else happens."""
    with pytest.raises((CallbackMalformedError, CallbackSpecversionError, CallbackIdError)):
        parse_envelope(text, APPLICATION)


def test_a_body_over_the_limit_is_not_read() -> None:
    """One byte more than 1 MiB is refused by its size."""
    with pytest.raises(CallbackTooLargeError):
        parse_envelope(b" " * (BODY_BYTES_MAX + 1), APPLICATION)


@pytest.mark.parametrize(
    ("kind", "status"),
    [("execution.progress", "RUNNING"), ("execution.timed_out", "TIMED_OUT"), ("other", "")],
)
def test_an_empty_status_is_what_the_type_says(kind: str, status: str) -> None:
    """A known type implies its status; an unknown one says nothing."""
    changed = document(status="")
    changed["type"] = kind
    event = parse_envelope(json.dumps(changed).encode(), APPLICATION)
    assert event.platform_status == status


def test_ids_are_compared_in_lower_case_and_a_foreign_reference_is_kept() -> None:
    """UUIDs in capitals are the same ids; a reference that is no UUID names no order of ours."""
    event = parse_envelope(body(external_ref=ORDER.upper(), task_id=TASK.upper()), APPLICATION)
    assert (event.external_ref, event.task_id) == (ORDER, TASK)
    assert parse_envelope(body(external_ref="invoice 7"), APPLICATION).external_ref == "invoice 7"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=3)
    | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(
    value=st.dictionaries(st.text(max_size=5), JSON, max_size=5),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
def test_members_are_the_parts_of_the_text(
    value: dict[str, object], indent: int | None, *, ascii_only: bool
) -> None:
    """Each member's text means the member, and is a part of the whole."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    found = members(f" {text}\n")
    assert {key: json.loads(part) for key, part in found.items()} == value
    assert all(part in text for part in found.values())


@given(st.text(alphabet='{}[]":,1ae \\', max_size=30))
def test_any_text_is_members_or_malformed(text: str) -> None:
    """Whatever comes, the answer is members exactly where Python's own parser finds an object."""
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found: object = {key: json.loads(part) for key, part in members(text).items()}
    except JsonMalformedError:
        found = None
    if isinstance(expected, dict) and found is not None:
        assert found == expected
    elif not isinstance(expected, dict):
        assert found is None
