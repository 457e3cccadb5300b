"""The filter language of task lists and of bulk acts: a part of AIP-160.

    filter     = [ term { AND term } ]
    term       = comparison { OR comparison } | "(" comparison { OR comparison } ")"
    comparison = field operator value

As in AIP-160, OR binds tighter than AND. The alternatives of an OR name one field and `=`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Final

from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.execution_state import EXECUTION_MACHINE, ExecutionStatus
from control_plane.limits import FILTER_CHARS_MAX
from foundation.errors import InvalidArgumentError

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<operator><=|>=|!=|=|<|>)|(?P<bracket>[()])"""
    r"""|(?P<text>(?:"(?:[^"\\]|\\.)*"|[A-Za-z0-9_./:+-])+))\s*"""
)
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_MOMENT: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_LABEL: Final = "labels."
_FIELDS: Final = (
    "use status, workflow, external_ref, quarantined, create_time, complete_time or labels.<key>"
)
_OPERATORS: Final = {
    "status": {"=", "!="},
    "workflow": {"="},
    "external_ref": {"="},
    "quarantined": {"="},
    "create_time": {"<", "<=", ">", ">="},
    "complete_time": {"<", "<=", ">", ">="},
    _LABEL: {"="},
}
_MICROSECOND: Final = timedelta(microseconds=1)


class FilterInvalidError(ControlPlaneError, InvalidArgumentError):
    """The filter cannot be read; the message says what is wrong and at which character."""

    reason = "FILTER_INVALID"


@dataclass(frozen=True, slots=True)
class Period:
    """Moments at or after `start` and before `end`; None leaves a side open."""

    start: datetime | None = None
    end: datetime | None = None

    def within(self, start: datetime | None, end: datetime | None) -> "Period":
        """Return the part that lies within another period too."""
        starts = [one for one in (self.start, start) if one is not None]
        ends = [one for one in (self.end, end) if one is not None]
        return Period(max(starts, default=None), min(ends, default=None))


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """What a task and its current execution must have; None means anything.

    Of `statuses`, `workflows` and `external_refs` one has to fit, of `labels` all.
    """

    statuses: frozenset[ExecutionStatus] | None = None
    workflows: frozenset[str] | None = None
    external_refs: frozenset[str] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    created: Period = Period()
    completed: Period = Period()
    # Only executions that were set aside, because their advances kept failing.
    quarantined_only: bool = False

    @property
    def live_only(self) -> bool:
        """Whether no terminal execution can fit."""
        terminal = EXECUTION_MACHINE.is_terminal
        return self.statuses is not None and not any(map(terminal, self.statuses))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int


@dataclass(frozen=True, slots=True)
class _Comparison:
    field: str
    label: str
    operator: str
    value: str
    place: int

    @property
    def name(self) -> str:
        return self.field + self.label


def parse_filter(text: str) -> TaskFilter:
    """Read `status = "RUNNING" AND labels.team = "a"`; FilterInvalidError says what is wrong."""
    if len(text) > FILTER_CHARS_MAX:
        raise _invalid(f"has {len(text)} characters, over {FILTER_CHARS_MAX}")
    if "\x00" in text:
        raise _invalid("holds a NUL character: leave it out")
    found = TaskFilter()
    named: set[str] = set()
    for alternatives in _Reader(list(_tokens(text))).terms():
        first = alternatives[0]
        if first.operator == "=":
            if first.name in named:
                raise _invalid(f"names {first.name} twice: join what may fit by OR")
            named.add(first.name)
        found = _narrowed(found, alternatives)
    return found


def _narrowed(found: TaskFilter, alternatives: Sequence[_Comparison]) -> TaskFilter:
    """Return the filter that asks for one of the alternatives too."""
    first = alternatives[0]
    values = frozenset(one.value for one in alternatives)
    match first.field:
        case "status":
            wanted = frozenset(map(_status, values))
            if first.operator == "!=":
                wanted = frozenset(ExecutionStatus) - wanted
            kept = wanted if found.statuses is None else wanted & found.statuses
            return replace(found, statuses=kept)
        case "workflow":
            return replace(found, workflows=values)
        case "external_ref":
            return replace(found, external_refs=values)
        case "quarantined":
            if values != {"true"}:
                raise _invalid("compares quarantined with something else: use quarantined = true")
            return replace(found, quarantined_only=True)
        case "create_time":
            return replace(found, created=found.created.within(*_bounds(first)))
        case "complete_time":
            return replace(found, completed=found.completed.within(*_bounds(first)))
        case _:
            return replace(found, labels=(*found.labels, (first.label, first.value)))


class _Reader:
    """Reads terms from tokens, one after the other."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def terms(self) -> Iterator[Sequence[_Comparison]]:
        """Yield each term as its alternatives."""
        while self._next < len(self._tokens):
            if self._next and not self._skip("AND"):
                raise _invalid(f"expects AND or OR at character {self._place}")
            yield self._term()

    def _term(self) -> Sequence[_Comparison]:
        bracketed = self._skip("(")
        alternatives = [self._comparison()]
        while self._skip("OR"):
            alternatives.append(self._comparison())
            _check_alternative(alternatives[0], alternatives[-1])
        if bracketed and not self._skip(")"):
            raise _invalid(f"expects ) at character {self._place}")
        return alternatives

    def _comparison(self) -> _Comparison:
        tokens = self._tokens[self._next : self._next + 3]
        if [one.kind for one in tokens] != ["text", "operator", "text"]:
            raise _invalid(f'expects field = "value" at character {self._place}')
        self._next += len(tokens)
        field, operator, value = tokens
        label = ""
        name = field.text
        if name.startswith(_LABEL):
            name, label = _LABEL, _unquoted(name.removeprefix(_LABEL))
        allowed = _OPERATORS.get(name)
        if allowed is None or (name == _LABEL and not label):
            raise _invalid(f"names {field.text!r}: {_FIELDS}")
        if operator.text not in allowed:
            raise _invalid(
                f"compares {field.text} by {operator.text}: use {', '.join(sorted(allowed))}"
            )
        return _Comparison(name, label, operator.text, _unquoted(value.text), field.place)

    def _skip(self, text: str) -> bool:
        met = self._next < len(self._tokens) and self._tokens[self._next].text == text
        self._next += met
        return met

    @property
    def _place(self) -> int:
        if self._next < len(self._tokens):
            return self._tokens[self._next].place
        last = self._tokens[-1]
        return last.place + len(last.text)


def _check_alternative(first: _Comparison, other: _Comparison) -> None:
    if other.field != first.field or {first.operator, other.operator} != {"="}:
        raise _invalid(f"joins by OR at character {other.place} what is not = of one field")
    if first.field == _LABEL:
        raise _invalid("joins labels by OR: ask for one label after the other")


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise _invalid(f'expects field = "value" at character {place + 1}')
        kind = match.lastgroup
        assert kind is not None
        yield _Token(kind, match[kind], match.start(kind) + 1)
        place = match.end()


def _unquoted(text: str) -> str:
    match = _QUOTED.fullmatch(text)
    if match is not None:
        return re.sub(r"\\(.)", r"\1", match[1])
    if '"' in text:
        raise _invalid(f"quotes only a part of {text}: quote all of it")
    return text


def _status(value: str) -> ExecutionStatus:
    if value not in set(ExecutionStatus):
        raise _invalid(f"asks for status {value!r}: use {', '.join(ExecutionStatus)}")
    return ExecutionStatus(value)


def _bounds(comparison: _Comparison) -> tuple[datetime | None, datetime | None]:
    """Return the half-open period that a comparison with a time asks for."""
    moment = _moment(comparison)
    match comparison.operator:
        case ">=":
            return moment, None
        case ">":
            return moment + _MICROSECOND, None
        case "<":
            return None, moment
        case _:
            return None, moment + _MICROSECOND


def _moment(comparison: _Comparison) -> datetime:
    try:
        if not _MOMENT.fullmatch(comparison.value):
            raise ValueError(comparison.value)  # noqa: TRY301 - one answer for every wrong time
        moment = datetime.fromisoformat(comparison.value.upper()).astimezone(UTC)
        # The years at both ends leave no room for what is added to a moment.
        if not MINYEAR + 1 < moment.year < MAXYEAR:
            raise ValueError(comparison.value)  # noqa: TRY301
    except (ValueError, OverflowError):
        raise _invalid(
            f"has the time {comparison.value!r} at character {comparison.place}: "
            'write it as "2026-01-31T09:30:00Z"'
        ) from None
    return moment


def _invalid(why: str) -> FilterInvalidError:
    return FilterInvalidError.of_field("filter", why)
