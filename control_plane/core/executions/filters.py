"""The filter language of lists: a part of AIP-160, equalities joined by AND."""

import re
from dataclasses import dataclass
from typing import Final

from control_plane.core.errors import ControlPlaneError
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.limits import FILTER_CHARS_MAX
from foundation.errors import InvalidArgumentError

_TERM: Final = re.compile(
    r"""\s*(?P<field>[a-z_]+(?:\.[A-Za-z0-9_./-]+)?)\s*=\s*"""
    r"""(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[A-Za-z0-9_.:-]+))\s*"""
)
_AND: Final = re.compile(r"AND\b")


class FilterInvalidError(ControlPlaneError, InvalidArgumentError):
    """The filter cannot be read; the message says at which character."""

    reason = "FILTER_INVALID"


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """What tasks must have; None means anything."""

    status: str | None = None
    workflow: str | None = None
    external_ref: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


def parse_filter(text: str) -> TaskFilter:
    """Read `status = "RUNNING" AND labels.team = "a"`; FilterInvalidError says what is wrong."""
    if len(text) > FILTER_CHARS_MAX:
        raise _invalid(f"has {len(text)} characters, over {FILTER_CHARS_MAX}")
    found: dict[str, str] = {}
    labels: list[tuple[str, str]] = []
    for field, value in _terms(text):
        if field.startswith("labels."):
            labels.append((field.removeprefix("labels."), value))
        elif field not in {"status", "workflow", "external_ref"}:
            raise _invalid(f"names {field!r}: use status, workflow, external_ref or labels.<key>")
        elif field in found:
            raise _invalid(f"names {field} twice")
        else:
            found[field] = value
    status = found.get("status")
    if status is not None and status not in set(ExecutionStatus):
        raise _invalid(f"asks for status {status!r}: use {', '.join(ExecutionStatus)}")
    return TaskFilter(status, found.get("workflow"), found.get("external_ref"), tuple(labels))


def _terms(text: str) -> list[tuple[str, str]]:
    terms: list[tuple[str, str]] = []
    place = 0
    while text[place:].strip():
        if terms:
            joined = _AND.match(text, place)
            if joined is None:
                raise _invalid(f"expects AND at character {place + 1}")
            place = joined.end()
        term = _TERM.match(text, place)
        if term is None:
            raise _invalid(f'expects field = "value" at character {place + 1}')
        quoted = term["quoted"]
        value = term["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        terms.append((term["field"], value))
        place = term.end()
    return terms


def _invalid(why: str) -> FilterInvalidError:
    return FilterInvalidError.of_field("filter", why)
