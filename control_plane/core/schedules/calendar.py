"""When a cron expression is due, in a time zone, also where clocks go forward or back.

The rules are those of Debian's cron, as cronsim implements them. An expression for fixed times
is due at the first moment after a gap for what the gap leaves out, and once, at the first
occurrence, for a time that occurs twice. One whose minute or hour begins with `*` goes by what
the clock shows: what a gap leaves out does not happen, what occurs twice happens twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from control_plane.core.schedules.errors import ScheduleInvalidError

CRON_CHARS_MAX: Final = 200
_FIELD_COUNT: Final = 5
_PARSED_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class Calendar:
    """A checked expression in a checked time zone."""

    cron: str
    time_zone: str

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first due time after `moment`, in UTC; None if there is none in 50 years."""
        return next(self.after(moment), None)

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Return every due time after `moment`, in order, in UTC."""
        newest = moment
        for local in CronSim(self.cron, moment.astimezone(_zone(self.time_zone))):
            due = local.astimezone(UTC)
            # Several times within a gap are all due at its end; and within the hour that occurs
            # twice, a fixed time reads as its first occurrence, which has passed.
            if due > newest:
                newest = due
                yield due

    def local_text(self, moment: datetime) -> str:
        """Return the moment in the calendar's time zone, RFC 3339 with its offset."""
        return moment.astimezone(_zone(self.time_zone)).isoformat(timespec="seconds")


def parse_calendar(cron: str, time_zone: str) -> Calendar:
    """Check both texts; an empty zone is UTC. Raises ScheduleInvalidError naming the field."""
    _check_zone(time_zone or "UTC")
    cron = " ".join(cron.split())
    _check_cron(cron)
    return Calendar(cron, time_zone or "UTC")


def _check_cron(cron: str) -> None:
    count = len(cron.split(" ")) if cron else 0
    if len(cron) > CRON_CHARS_MAX:
        raise _wrong("cron", f"has {len(cron)} characters, over {CRON_CHARS_MAX}")
    if count != _FIELD_COUNT:
        raise _wrong(
            "cron",
            f"{cron!r} has {count} fields: send 5, minute hour day month weekday, such as "
            '"30 6 * * 1-5"',
        )
    try:
        CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        raise _wrong("cron", f"{cron!r} has a {field} that cannot be read") from None


def _check_zone(name: str) -> None:
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):
        raise _wrong(
            "time_zone", f"{name[:64]!r} is no IANA time zone: send one such as Europe/Berlin"
        ) from None


def _wrong(field: str, description: str) -> ScheduleInvalidError:
    return ScheduleInvalidError.of_field(f"spec.{field}", description)


@lru_cache(maxsize=_PARSED_MAX)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)
