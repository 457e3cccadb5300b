"""What the page can be refused."""

from business_gateway.core.errors import GatewayError
from foundation.errors import NotFoundError, PermissionDeniedError


class SessionForbiddenError(GatewayError, PermissionDeniedError):
    """The session may not do this: it lacks the identity, or the request lacks its CSRF token."""

    reason = "SESSION_FORBIDDEN"


class OperatorKeyRefusedError(GatewayError, PermissionDeniedError):
    """The control plane no longer takes the operator's key of this session; add another one."""

    reason = "OPERATOR_KEY_REFUSED"


class RpcNotOfferedError(GatewayError, NotFoundError):
    """The page does not call this method; use a gRPC client with your own key."""

    reason = "RPC_NOT_OFFERED"
