"""What a capability raises when its work fails, and how the agent's errors reach it."""

from foundation.errors import ErrorCode, TdpError


class Retryable(TdpError):  # noqa: N818 - a verdict that authors write, shorter than its kind
    """The work failed and the same input may succeed later, after `after_s` seconds at least."""

    reason = "WORK_FAILED"
    retryable = True
    code = ErrorCode.UNAVAILABLE

    def __init__(self, reason: str, message: str, *, after_s: float | None = None) -> None:
        """Keep an UPPER_SNAKE reason, and what was wrong, with which value, and what to do."""
        super().__init__(message, reason=reason, retry_delay_s=after_s)


class Fatal(TdpError):  # noqa: N818 - a verdict that authors write, shorter than its kind
    """The work failed, and will fail again with the same input."""

    reason = "WORK_REFUSED"
    code = ErrorCode.FAILED_PRECONDITION

    def __init__(self, reason: str, message: str) -> None:
        """Keep an UPPER_SNAKE reason, and what was wrong, with which value, and what to do."""
        super().__init__(message, reason=reason)


class CapabilityDefinitionError(TdpError):
    """A capability is declared in a way that cannot work; the message names it."""

    reason = "CAPABILITY_DEFINITION_INVALID"
    code = ErrorCode.FAILED_PRECONDITION


class ServiceRefusedError(TdpError):
    """The agent or the control plane refused what the attempt asked for."""

    reason = "SERVICE_REFUSED"

    def __init__(
        self, reason: str, message: str, *, retryable: bool, retry_delay_s: float | None = None
    ) -> None:
        """Carry over the reason and whether a retry of the attempt can help."""
        super().__init__(message, reason=reason, retry_delay_s=retry_delay_s)
        self.retryable = retryable
