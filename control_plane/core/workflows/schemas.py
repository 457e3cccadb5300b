"""JSON Schema 2020-12 behind a small face: compile once, say where a document is wrong."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from jsonschema_rs import Draft202012Validator, RegexOptions

from control_plane.core.expressions.values import JsonValue
from control_plane.core.workflows.errors import DefinitionInvalidError, InputInvalidError
from foundation.errors import FieldViolation

_VIOLATIONS_MAX: Final = 20
_MESSAGE_CHARS_MAX: Final = 300


class DocumentSchema:
    """A compiled schema; immutable, safe to share."""

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        """Compile it; raise DefinitionInvalidError when it is no JSON Schema.

        References are resolved inside the schema only, and patterns run in linear time,
        since both come from outside.
        """
        try:
            self._validator = Draft202012Validator(
                dict(schema), offline=True, pattern_options=RegexOptions()
            )
        except ValueError as error:
            raise DefinitionInvalidError(
                f"it is no valid JSON Schema 2020-12: {_short(error)}"
            ) from error

    def check(self, document: JsonValue, what: str) -> None:
        """Raise InputInvalidError naming each wrong place of the document, by its path.

        `what` names the document in messages and starts the paths: `input`.
        """
        errors = islice(self._validator.iter_errors(document), _VIOLATIONS_MAX)
        violations = [
            FieldViolation(what + _path(error.instance_path), _short(error), "SCHEMA")
            for error in errors
        ]
        if violations:
            message = "; ".join(f"{one.field}: {one.description}" for one in violations)
            raise InputInvalidError(message, field_violations=violations)


def _path(parts: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _short(error: Exception) -> str:
    message = str(getattr(error, "message", error))
    if len(message) <= _MESSAGE_CHARS_MAX:
        return message
    return f"{message[:_MESSAGE_CHARS_MAX]}…"
