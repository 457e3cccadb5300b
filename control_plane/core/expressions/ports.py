"""The port to a CEL runtime: compile once, evaluate often."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from control_plane.core.expressions.values import JsonValue


class ValueKind(StrEnum):
    """The static type of an expression, as far as definitions care."""

    BOOL = "bool"
    LIST = "list"
    TEXT = "text"
    DYNAMIC = "dynamic"
    OTHER = "other"


class CompiledExpression(Protocol):
    """An expression that compiled and type-checked; immutable, safe to share."""

    @property
    def source(self) -> str:
        """The text it was compiled from."""
        ...

    @property
    def kind(self) -> ValueKind:
        """What it yields; DYNAMIC when only the documents can tell."""
        ...

    def evaluate(self, variables: Mapping[str, JsonValue]) -> JsonValue:
        """Return the value as JSON data, integers exact within 64 bits.

        Raises ExpressionFailedError for every error of evaluation: a missing key, a wrong
        type, an overflow, a used-up budget, a result that is no JSON.
        """
        ...


class ExpressionCompiler(Protocol):
    """Compiles expressions over `input`, `steps`, `execution`, and for items `item`, `index`."""

    def compile(self, source: str, *, per_item: bool) -> CompiledExpression:
        """Compile and type-check; `per_item` declares `item` and `index` too.

        Raises ExpressionInvalidError with the runtime's own message and place.
        """
        ...
