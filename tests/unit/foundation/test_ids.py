"""Ids: valid, ordered UUIDv7, and refusal of what is not an id."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.clock import ManualClock, SystemClock
from foundation.errors import InvalidArgumentError
from foundation.ids import NIL_ID, SequentialIds, SystemIds, is_id, parse_id


def test_ids_are_version_7_and_carry_the_time() -> None:
    """An id is an RFC 9562 version 7 UUID whose first 48 bits are the milliseconds."""
    moment = datetime(2026, 5, 4, 3, 2, 1, 7_000, tzinfo=UTC)
    made = uuid.UUID(SystemIds(ManualClock(moment)).new_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == int(moment.timestamp() * 1_000)


@given(st.lists(st.integers(-5_000, 5_000), max_size=60))
def test_ids_grow_whatever_the_wall_clock_does(jumps_ms: list[int]) -> None:
    """Each id is greater than the one before, though the clock stands still or goes back."""
    clock = ManualClock()
    ids = SystemIds(clock)
    made = [ids.new_id()]
    for jump_ms in jumps_ms:
        clock.jump_wall(jump_ms / 1_000)
        made.append(ids.new_id())
    assert made == sorted(set(made))
    assert all(uuid.UUID(one).version == 7 for one in made)


def test_an_exhausted_tail_moves_into_the_next_millisecond() -> None:
    """When the random tail overflows in one millisecond, order and version still hold."""
    ids = SystemIds(ManualClock(), random_bytes=lambda count: b"\xff" * count)
    ids._tail = (1 << 74) - 1
    ids._millis = 1 << 41
    first, second = ids.new_id(), ids.new_id()
    assert first < second
    assert uuid.UUID(first).int >> 80 == (1 << 41) + 1
    assert uuid.UUID(first).version == 7


def test_threads_never_make_the_same_id() -> None:
    """Four threads on one source make distinct ids."""
    ids = SystemIds(SystemClock())
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: [ids.new_id() for _ in range(500)], range(4)))
    made = [one for part in parts for one in part]
    assert len(set(made)) == 2_000


def test_sequential_ids_count_up_and_are_valid() -> None:
    """The ids for tests are readable, ordered and accepted by the parser."""
    ids = SequentialIds()
    made = [ids.new_id() for _ in range(3)]
    assert made[0] == "00000000-0000-7000-8000-000000000001"
    assert made == sorted(made)
    assert [parse_id(one, "id") for one in made] == made


def test_parse_lowers_the_case() -> None:
    """Upper-case UUIDs of any version are one identity with their lower-case form."""
    text = str(uuid.uuid4())
    assert parse_id(text.upper(), "task_id") == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (NIL_ID, "ID_NIL"),
        ("", "ID_MALFORMED"),
        ("not-an-id", "ID_MALFORMED"),
        ("{12345678-1234-1234-1234-123456789012}", "ID_MALFORMED"),
        ("urn:uuid:12345678-1234-1234-1234-123456789012", "ID_MALFORMED"),
        ("12345678123412341234123456789012", "ID_MALFORMED"),
        ("12345678-1234-1234-1234-123456789012\n", "ID_MALFORMED"),
        ("x" * 100_000, "ID_MALFORMED"),
    ],
)
def test_parse_refuses_what_is_no_id(text: str, reason: str) -> None:
    """Nil, foreign spellings and rubbish are refused with the field, a reason, in bounds."""
    with pytest.raises(InvalidArgumentError) as caught:
        parse_id(text, "task_id")
    (violation,) = caught.value.field_violations
    assert (violation.field, violation.reason) == ("task_id", reason)
    assert len(caught.value.message) < 250
    assert not is_id(text)
