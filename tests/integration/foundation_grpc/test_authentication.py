"""Bearer tokens become principals in every kind of handler, and nothing else gets in."""

import pytest
from google.protobuf.wrappers_pb2 import StringValue
from grpc_health.v1.health_pb2 import HealthCheckResponse

from foundation.errors import PermissionDeniedError, UnauthenticatedError, UnavailableError
from foundation.grpc.channel import bearer_metadata, call_unary, owned_call
from foundation.principals import (
    Principal,
    PrincipalKind,
    Scope,
    current_principal,
)
from tests.integration.foundation_grpc.echo import SERVICE, Served, served


class Tokens:
    """Knows one token per principal."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def authenticate(self, method: str, token: str) -> Principal:
        """Tell two good tokens from a disabled one, a broken look-up and the rest."""
        self.asked.append(method)
        match token:
            case "app-key" | "other-key":
                name = token.removesuffix("-key")
                return Principal(PrincipalKind.APPLICATION, name, frozenset({Scope.READ}))
            case "disabled":
                raise PermissionDeniedError("application app is disabled: enable it")
            case "database-away":
                raise OSError("connection to 10.0.0.1 refused")
            case _:
                raise UnauthenticatedError("the token is not valid: ask for a new one")


async def who(one: Served, *metadata: tuple[str, str]) -> str:
    """Ask the server who we are."""
    answer = await call_unary(
        one.caller.unary(),
        StringValue(value="who"),
        timeout_s=10.0,
        metadata=metadata,
    )
    return answer.value


async def test_the_principal_is_the_one_behind_the_token() -> None:
    """Each call sees its own principal, and the authenticator hears the full method."""
    tokens = Tokens()
    async with served(authenticator=tokens) as one:
        assert await who(one, *bearer_metadata("app-key")) == "app"
        assert await who(one, ("authorization", "bearer other-key")) == "other"
    assert tokens.asked == [f"/{SERVICE}/unary"] * 2


@pytest.mark.parametrize("name", ["generator", "writer"])
async def test_streams_see_their_principal(name: str) -> None:
    """Both ways of writing a streaming handler see the principal."""
    async with served(authenticator=Tokens()) as one:
        started = one.caller.method(name, "unary_stream")(
            StringValue(value="who"), metadata=bearer_metadata("app-key")
        )
        async with owned_call(started) as call:
            assert [answer.value async for answer in call] == ["first", "app"]


async def test_a_bidirectional_session_sees_its_principal() -> None:
    """A handler with context.read and write sees the principal at every message."""
    async with served(authenticator=Tokens()) as one:
        started = one.caller.method("session", "stream_stream")(metadata=bearer_metadata("app-key"))
        async with owned_call(started) as stream:
            for _ in range(2):
                await stream.write(StringValue(value="who"))
                assert (await stream.read()).value == "app"


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ([], "CREDENTIAL_MISSING"),
        ([("authorization", "Bearer a"), ("authorization", "Bearer b")], "CREDENTIAL_MISSING"),
        ([("authorization", "app-key")], "CREDENTIAL_MALFORMED"),
        ([("authorization", "Basic app-key")], "CREDENTIAL_MALFORMED"),
        ([("authorization", "Bearer ")], "CREDENTIAL_MALFORMED"),
        ([("authorization", "Bearer " + "x" * 600)], "CREDENTIAL_MALFORMED"),
        ([("authorization", "Bearer wrong")], "UNAUTHENTICATED"),
    ],
)
async def test_missing_and_wrong_credentials(metadata: list[tuple[str, str]], reason: str) -> None:
    """No, double, malformed and unknown credentials are UNAUTHENTICATED before the handler."""
    async with served(authenticator=Tokens()) as one:
        with pytest.raises(UnauthenticatedError) as caught:
            await who(one, *metadata)
        assert one.echo.calls == 0
    assert caught.value.reason == reason


async def test_a_disabled_principal_is_denied() -> None:
    """What the authenticator refuses arrives as it was refused."""
    async with served(authenticator=Tokens()) as one:
        with pytest.raises(PermissionDeniedError, match="disabled"):
            await who(one, *bearer_metadata("disabled"))


async def test_a_credential_that_cannot_be_checked_is_unavailable() -> None:
    """When the look-up breaks, the caller is told to come back, not that its token is wrong."""
    async with served(authenticator=Tokens()) as one:
        with pytest.raises(UnavailableError) as caught:
            await who(one, *bearer_metadata("database-away"))
    assert caught.value.reason == "CREDENTIAL_CHECK_UNAVAILABLE"
    assert caught.value.retry_delay_s == 1.0
    assert "10.0.0.1" not in caught.value.message


async def test_open_methods_need_no_credential() -> None:
    """Health (by prefix) and a listed method pass without a token, without any principal."""
    async with served(authenticator=Tokens()) as one:
        assert await one.caller.health(SERVICE) == HealthCheckResponse.SERVING
        call = one.caller.method("collect", "stream_unary")(
            iter([StringValue(value="a")]), timeout=10.0
        )
        assert (await call).value == "a"


def test_outside_a_request_there_is_no_principal() -> None:
    """Asking for the principal without one is UNAUTHENTICATED, not an empty answer."""
    with pytest.raises(UnauthenticatedError):
        current_principal()


def test_scopes_and_kinds_are_required_by_name() -> None:
    """A missing scope or a wrong kind is denied by reason; admin has every scope."""
    reader = Principal(PrincipalKind.APPLICATION, "app", frozenset({Scope.READ}))
    reader.require_scope(Scope.READ)
    reader.require_kind(PrincipalKind.APPLICATION)
    with pytest.raises(PermissionDeniedError) as scope:
        reader.require_scope(Scope.SUBMIT)
    with pytest.raises(PermissionDeniedError) as kind:
        reader.require_kind(PrincipalKind.NODE, PrincipalKind.OPERATOR)
    assert (scope.value.reason, kind.value.reason) == ("SCOPE_MISSING", "PRINCIPAL_KIND_REFUSED")
    Principal(PrincipalKind.OPERATOR, "root", frozenset({Scope.ADMIN})).require_scope(Scope.SUBMIT)
