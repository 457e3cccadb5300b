"""When a cron expression is due, above all where clocks go forward or back."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.core.schedules.calendar import parse_calendar
from control_plane.core.schedules.errors import ScheduleInvalidError

_BERLIN = "Europe/Berlin"


def _due(cron: str, zone: str, after: str, count: int) -> list[str]:
    calendar = parse_calendar(cron, zone)
    found = islice(calendar.after(datetime.fromisoformat(after)), count)
    return [calendar.local_text(one) for one in found]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "due"),
    [
        # Left out by the gap: at its end, once however many there are.
        ("30 2 * * *", _BERLIN, "2026-03-28T12:00:00+01:00",
         ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        ("15,45 2 * * *", _BERLIN, "2026-03-28T12:00:00+01:00",
         ["2026-03-29T03:00:00+02:00", "2026-03-30T02:15:00+02:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
         ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"]),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00",
         ["2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"]),
        # Occurring twice: the first time only, also when asked in between.
        ("30 2 * * *", _BERLIN, "2026-10-24T12:00:00+02:00",
         ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("30 2 * * *", _BERLIN, "2026-10-25T02:10:00+01:00", ["2026-10-26T02:30:00+01:00"]),
        # By what the clock shows: the gap leaves out, the hour that occurs twice repeats.
        ("*/30 * * * *", _BERLIN, "2026-03-29T01:20:00+01:00",
         ["2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00"]),
        ("*/30 * * * *", _BERLIN, "2026-10-25T02:10:00+02:00",
         ["2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00"]),
        # Days: either of two limited day fields, the last day, the second Monday, 29 February.
        ("0 12 15 * 5", "", "2026-01-10T00:00:00+00:00",
         ["2026-01-15T12:00:00+00:00", "2026-01-16T12:00:00+00:00"]),
        ("0 12 L * *", "UTC", "2026-02-01T00:00:00+00:00", ["2026-02-28T12:00:00+00:00"]),
        ("0 12 * * 1#2", "UTC", "2026-01-01T00:00:00+00:00", ["2026-01-12T12:00:00+00:00"]),
        ("0 12 29 feb *", "UTC", "2026-01-01T00:00:00+00:00", ["2028-02-29T12:00:00+00:00"]),
    ],
)  # fmt: skip
def test_due_times_follow_the_stated_rules(
    cron: str, zone: str, after: str, due: list[str]
) -> None:
    """Gaps, hours that occur twice and the forms of days give the times that the contract says."""
    assert _due(cron, zone, after, len(due)) == due


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("61 * * * *", "", "minute"),
        ("0 0 31 2 *", "", "day-of-month"),
        ("* * * *", "", "4 fields"),
        ("0 * * * * *", "", "6 fields"),
        ("", "", "0 fields"),
        ("@daily", "", "send 5"),
        ("* * * * *", "Mars/Base", "Mars/Base"),
        ("* * * * *", "../../etc/passwd", "IANA"),
        ("* " * 200, "", "over 200"),
    ],
)
def test_what_cannot_be_read_is_named(cron: str, zone: str, words: str) -> None:
    """A wrong expression or zone says which field is wrong, and what is expected."""
    with pytest.raises(ScheduleInvalidError, match=words):
        parse_calendar(cron, zone)


def test_a_rare_day_is_found() -> None:
    """A fifth Monday of February comes once in 28 years, and is found without a long search."""
    assert _due("0 0 * 2 1#5", "UTC", "2026-01-01T00:00:00+00:00", 1) == [
        "2044-02-29T00:00:00+00:00"
    ]


@given(
    minute=st.sampled_from(["*", "0", "7,30", "*/20"]),
    hour=st.sampled_from(["*", "2", "1-3", "*/6"]),
    zone=st.sampled_from([_BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"]),
    minutes=st.integers(0, 2 * 365 * 24 * 60),
)
def test_going_on_from_any_due_time_gives_the_same_list(
    minute: str, hour: str, zone: str, minutes: int
) -> None:
    """Due times grow, and a replica that goes on from a stored one finds what another finds."""
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    calendar = parse_calendar(f"{minute} {hour} * * *", zone)
    at_once = list(islice(calendar.after(start), 8))
    one_by_one = [start]
    for _ in at_once:
        found = calendar.next_after(one_by_one[-1])
        assert found is not None
        one_by_one.append(found)

    assert one_by_one[1:] == at_once
    assert all(later - earlier >= timedelta(minutes=1) for earlier, later in pairwise(at_once))
