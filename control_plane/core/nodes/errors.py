"""What can go wrong between nodes and the control plane."""

from control_plane.core.errors import ControlPlaneError
from foundation.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)


class NodeUnknownError(ControlPlaneError, NotFoundError):
    """No such node."""

    reason = "NODE_UNKNOWN"


class NodeBusyError(ControlPlaneError, FailedPreconditionError):
    """The node still holds attempts, and nobody said that they may be lost."""

    reason = "NODE_BUSY"


class JoinTokenUnknownError(ControlPlaneError, NotFoundError):
    """No such join token."""

    reason = "JOIN_TOKEN_UNKNOWN"


class JoinTokenInvalidError(ControlPlaneError, UnauthenticatedError):
    """The bearer token of an Enroll is no join token of ours."""

    reason = "JOIN_TOKEN_INVALID"


class JoinTokenSpentError(ControlPlaneError, FailedPreconditionError):
    """The join token is revoked, expired or used up."""

    reason = "JOIN_TOKEN_SPENT"


class JoinTokenExistsError(ControlPlaneError, AlreadyExistsError):
    """The same token was registered before."""

    reason = "JOIN_TOKEN_EXISTS"


class NodeExistsError(ControlPlaneError, AlreadyExistsError):
    """Another node has the name or the credential."""

    reason = "NODE_EXISTS"


class NodeMismatchError(ControlPlaneError, PermissionDeniedError):
    """A credential speaks for its own node only."""

    reason = "NODE_MISMATCH"


class SessionReplacedError(ControlPlaneError, AbortedError):
    """A newer session of the same node has taken over."""

    reason = "SESSION_REPLACED"


class StaleGenerationError(ControlPlaneError, FailedPreconditionError):
    """A message carries another generation than its session's; a missing one is refused too."""

    reason = "STALE_GENERATION"
    retryable = True


class ProtocolBrokenError(ControlPlaneError, InvalidArgumentError):
    """A message does not fit the session's protocol."""

    reason = "PROTOCOL_BROKEN"


class HelloMissingError(ControlPlaneError, FailedPreconditionError):
    """The stream did not begin with Hello in time."""

    reason = "HELLO_MISSING"
    retryable = True


class NodeNotReadingError(ControlPlaneError, UnavailableError):
    """The node does not read its stream, so the session was ended to bound memory."""

    reason = "NODE_NOT_READING"


class ReplicaDrainingError(ControlPlaneError, UnavailableError):
    """This replica is about to stop: connect again, to any."""

    reason = "REPLICA_DRAINING"
