"""What can be wrong with an expression, at publish and at run time."""

from typing import Final

from control_plane.core.errors import ControlPlaneError
from foundation.errors import FailedPreconditionError, InvalidArgumentError

_SHOWN_CHARS_MAX: Final = 300


class ExpressionInvalidError(ControlPlaneError, InvalidArgumentError):
    """An expression does not compile, or refers to what it may not see."""

    reason = "EXPRESSION_INVALID"


class ExpressionFailedError(ControlPlaneError, FailedPreconditionError):
    """A compiled expression could not be evaluated on these documents; never retried."""

    reason = "EXPRESSION_FAILED"

    def __init__(self, expression: str, detail: str) -> None:
        """Keep the expression and what went wrong; the step is added by who knows it."""
        super().__init__(f"expression {shown(expression)} failed: {detail}")
        self.expression = expression
        self.detail = detail


def shown(expression: str) -> str:
    """Return the expression for a message, shortened when it is long."""
    short = expression.strip()
    if len(short) > _SHOWN_CHARS_MAX:
        short = f"{short[:_SHOWN_CHARS_MAX]}…"
    return f"`{short}`"
