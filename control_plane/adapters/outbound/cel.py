"""CEL through Google's C++ runtime.

The runtime bounds what an expression may cost: 32 levels of nesting and 10,000 iterations
over all its macros. Two of its habits are handled here: errors of evaluation mostly come
back as a value of type ERROR, and only some are raised.
"""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from cel_expr_python import cel

from control_plane.core.expressions.errors import (
    ExpressionFailedError,
    ExpressionInvalidError,
    shown,
)
from control_plane.core.expressions.ports import ValueKind
from control_plane.core.expressions.values import JsonValue

_Type: Final = cel.Type
_SHARED_VARIABLES: Final = {
    "input": _Type.DYN,
    "steps": _Type.Map(_Type.STRING, _Type.DYN),
    "execution": _Type.Map(_Type.STRING, _Type.DYN),
}
_ITEM_VARIABLES: Final = {"item": _Type.DYN, "index": _Type.INT}
_KINDS: Final = {
    "BOOL": ValueKind.BOOL,
    "STRING": ValueKind.TEXT,
    "DYN": ValueKind.DYNAMIC,
}


class CelCompiler:
    """Compiles expressions; implements ExpressionCompiler."""

    __slots__ = ("_plain", "_with_item")

    def __init__(self) -> None:
        """Declare the variables, once without and once with those of an item."""
        self._plain = cel.NewEnv(variables=_SHARED_VARIABLES)
        self._with_item = cel.NewEnv(variables=_SHARED_VARIABLES | _ITEM_VARIABLES)

    def compile(self, source: str, *, per_item: bool) -> "CelExpression":
        """Compile and type-check; raise ExpressionInvalidError with the runtime's message."""
        environment = self._with_item if per_item else self._plain
        try:
            compiled = environment.compile(source)
        except RuntimeError as error:
            raise ExpressionInvalidError(
                f"expression {shown(source)} does not compile: {_first_complaint(error)}"
            ) from error
        return CelExpression(source, _kind_of(compiled.return_type()), compiled)


@dataclass(frozen=True, slots=True)
class CelExpression:
    """One compiled expression; implements CompiledExpression."""

    source: str
    kind: ValueKind
    compiled: cel.Expression

    def evaluate(self, variables: Mapping[str, JsonValue]) -> JsonValue:
        """Return the value as JSON data; raise ExpressionFailedError when there is none."""
        try:
            value = self.compiled.eval(data=variables)
        except RuntimeError as error:
            raise ExpressionFailedError(self.source, _first_complaint(error)) from error
        if value.type() == _Type.ERROR:
            raise ExpressionFailedError(self.source, str(value.value()))
        return _to_json_value(self.source, value.plain_value())


def _kind_of(static_type: cel.Type) -> ValueKind:
    name = static_type.name()
    return ValueKind.LIST if name.startswith("LIST") else _KINDS.get(name, ValueKind.OTHER)


def _first_complaint(error: RuntimeError) -> str:
    """Cut the runtime's message to its first line, without the code and the drawn arrow."""
    line = str(error).split("\n", 1)[0]
    return line.removeprefix("INVALID_ARGUMENT: ").removeprefix("ERROR: ").strip()


def _to_json_value(source: str, value: Any) -> JsonValue:  # noqa: ANN401 - any CEL value
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return _finite(source, value)
        case list():
            return [_to_json_value(source, one) for one in value]
        case dict():
            return {_key(source, key): _to_json_value(source, one) for key, one in value.items()}
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():.9f}".rstrip("0").rstrip(".") + "s"
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case _:
            raise ExpressionFailedError(source, f"its result {value!r} cannot be written as JSON")


def _finite(source: str, value: float) -> float:
    if not math.isfinite(value):
        raise ExpressionFailedError(source, f"its result {value} cannot be written as JSON")
    return value


def _key(source: str, key: object) -> str:
    if not isinstance(key, str):
        raise ExpressionFailedError(
            source, f"its result has the key {key!r}, and keys of JSON objects are text"
        )
    return key
