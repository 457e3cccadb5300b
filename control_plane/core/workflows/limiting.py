"""Reads the limits of a step or a workflow: concurrency_key and rate_limit."""

from datetime import timedelta
from typing import Final

from control_plane.core.workflows.domain import LimitDefinition, LimitScope
from control_plane.core.workflows.reading import Fields

CONCURRENCY_MAX: Final = 10_000
# Each start within the time is a row.
RATE_MAX: Final = 1_000
RATE_PERIOD_MAX: Final = timedelta(days=1)


def parse_limits(fields: Fields) -> tuple[LimitDefinition, ...]:
    """Return the limits that the object states, its concurrency first."""
    found = (_concurrency(fields), _rate(fields))
    return tuple(one for one in found if one is not None)


def _concurrency(fields: Fields) -> LimitDefinition | None:
    """Read `concurrency_key: KEY` (one at once), or an object with key, max and scope."""
    value = fields.take("concurrency_key")
    if value is None:
        return None
    if isinstance(value, str):
        return LimitDefinition(_key(value, fields, "concurrency_key"))
    part = fields.of("concurrency_key", value)
    limit = LimitDefinition(
        key=_key(part.take("key"), part, "key"),
        count=part.integer("max", 1, 1, CONCURRENCY_MAX),
        scope=part.choice("scope", LimitScope.WORKFLOW),
    )
    part.finish()
    return limit


def _rate(fields: Fields) -> LimitDefinition | None:
    """Read `rate_limit`: an object with max, per and, unless all share one, key and scope."""
    value = fields.take("rate_limit")
    if value is None:
        return None
    part = fields.of("rate_limit", value)
    key = part.take("key")
    count = part.integer("max", 0, 1, RATE_MAX)
    per = part.duration("per", None)
    if not count:
        part.wrong("max", f"is missing: how many may start in the time, 1 to {RATE_MAX}")
    if per is None or per > RATE_PERIOD_MAX:
        part.wrong("per", 'expected a duration of at most a day, such as "1m"')
    limit = LimitDefinition(
        key="" if key is None else _key(key, part, "key"),
        count=count,
        per=per,
        scope=part.choice("scope", LimitScope.WORKFLOW),
    )
    part.finish()
    return limit


def _key(value: object, fields: Fields, name: str) -> str:
    if isinstance(value, str) and value:
        return value
    fields.wrong(name, "expected a key as text, such as ${ input.customer }", "REQUIRED")
    return ""
