"""Who is calling: the principal of a request, its scopes, and how a token becomes one."""

from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from foundation.errors import PermissionDeniedError, UnauthenticatedError


class PrincipalKind(StrEnum):
    """What kind of thing calls."""

    APPLICATION = "application"
    NODE = "node"
    OPERATOR = "operator"


class Scope(StrEnum):
    """What a principal's key allows."""

    ADMIN = "admin"
    SUBMIT = "submit"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Principal:
    """The application, node or operator behind a request; never the id of one of its keys."""

    kind: PrincipalKind
    id: str
    scopes: frozenset[str] = frozenset()

    def require_scope(self, scope: Scope) -> None:
        """Raise PermissionDeniedError (SCOPE_MISSING) unless the scope, or admin, was granted."""
        if scope not in self.scopes and Scope.ADMIN not in self.scopes:
            raise PermissionDeniedError(
                f"{self.kind} {self.id} lacks the scope {scope}: use a key that has it",
                reason="SCOPE_MISSING",
                metadata={"scope": scope.value},
            )

    def require_kind(self, *kinds: PrincipalKind) -> None:
        """Raise PermissionDeniedError (PRINCIPAL_KIND_REFUSED) unless it is of one of the kinds."""
        if self.kind not in kinds:
            raise PermissionDeniedError(
                f"this call is for a principal of kind {' or '.join(kinds)}, not {self.kind}",
                reason="PRINCIPAL_KIND_REFUSED",
            )


class Authenticator(Protocol):
    """Turns a bearer token into its principal."""

    async def authenticate(self, method: str, token: str) -> Principal:
        """Return the principal for a call of `method` (`/package.Service/Method`).

        Raises UnauthenticatedError for a token that is unknown, revoked or expired,
        PermissionDeniedError for a disabled principal, UnavailableError when it cannot be
        checked now. Any other exception also counts as "cannot be checked now".
        """
        ...


_current: ContextVar[Principal] = ContextVar("tdp_principal")


def current_principal() -> Principal:
    """Return the principal of the request in progress; UnauthenticatedError outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise UnauthenticatedError(
            "no principal: the call is outside a request, or its method needs no credential"
        ) from None


def enter_principal(principal: Principal) -> Token[Principal]:
    """Make the principal current in this context; pass the token to `leave_principal`."""
    return _current.set(principal)


def leave_principal(token: Token[Principal]) -> None:
    """Restore what was current before `enter_principal`."""
    _current.reset(token)
