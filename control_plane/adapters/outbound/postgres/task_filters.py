"""A task filter as the arguments of fitting_tasks, the database's function for it."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from control_plane.core.executions.filters import TaskFilter

_CLOCKS_APART_MAX: Final = timedelta(hours=2)
"""How far a replica's clock, which ids are made by, may be from the database's."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_UNIX_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_LAST_MILLIS: Final = 2**48 - 1


def fitting_arguments(
    owner: str | None, wanted: TaskFilter, before_id: str | None
) -> tuple[object, ...]:
    """Return the arguments of fitting_tasks, in order.

    Ids begin with the time at which they were made, so a bound on the time of creation is also
    one on the ids, a little wider, and the index on ids serves both.
    """
    start, end = wanted.created.start, wanted.created.end
    last = None if end is None else _first_id_of(end + _CLOCKS_APART_MAX)
    befores = [one for one in (before_id, last) if one is not None]
    return (
        owner,
        min(befores, default=None),
        None if start is None else _first_id_of(start - _CLOCKS_APART_MAX),
        _array(wanted.statuses),
        _liveness(wanted),
        _array(wanted.workflows),
        _array(wanted.external_refs),
        json.dumps(dict(wanted.labels)),
        start,
        end,
        wanted.completed.start,
        wanted.completed.end,
    )


def _liveness(wanted: TaskFilter) -> int:
    """Return 0 for all, 1 for what is live, 2 for what is live and quarantined."""
    return 2 if wanted.quarantined_only else int(wanted.live_only)


def _array(values: Iterable[str] | None) -> list[str] | None:
    return None if values is None else sorted(values)


def _first_id_of(moment: datetime) -> str:
    """Return the lowest UUIDv7 that can have been made at a moment."""
    millis = min(max((moment - _UNIX_EPOCH) // _MILLISECOND, 0), _LAST_MILLIS)
    text = f"{millis:012x}"
    return f"{text[:8]}-{text[8:]}-7000-8000-000000000000"
