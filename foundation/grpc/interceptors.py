"""Server interceptors: errors to statuses, bearer tokens to principals.

`server_interceptors` builds the chain: ErrorInterceptor outermost, then AuthenticationInterceptor.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import grpc
import structlog

from foundation.clock import Clock
from foundation.errors import (
    InternalError,
    TdpError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from foundation.grpc.status import grpc_code, to_status, trailing_metadata
from foundation.grpc.surround import Context, Continuation, Handler, ServedCall, SurroundInterceptor
from foundation.ids import IdSource
from foundation.principals import Authenticator, Principal, enter_principal, leave_principal

HEALTH_METHODS: Final = "/grpc.health.v1.Health/"
REFLECTION_METHODS: Final = "/grpc.reflection.v1alpha.ServerReflection/"
_AUTHORIZATION = "authorization"
_TOKEN_CHARS_MAX = 512

_log = structlog.stdlib.get_logger(__name__)


class RpcObserver(Protocol):
    """Hears of every finished call, for metrics."""

    def finished(self, method: str, code: str, duration_s: float) -> None:
        """Take note: `code` is the status name (`OK`, `NOT_FOUND`); must not raise or block."""
        ...


class ErrorInterceptor(SurroundInterceptor):
    """Turns errors into rich statuses; of an unexpected one only an id leaves the process."""

    def __init__(self, ids: IdSource, clock: Clock, observers: Sequence[RpcObserver] = ()) -> None:
        super().__init__(self._guarded)
        self._ids = ids
        self._clock = clock
        self._observers = tuple(observers)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Guard the handler; a method that nobody serves gets a rich status as well."""

        async def served(details: grpc.HandlerCallDetails) -> Handler:
            handler = await continuation(details)
            return handler if handler is not None else _unknown_method(details.method)

        return await super().intercept_service(served, handler_call_details)

    @asynccontextmanager
    async def _guarded(self, call: ServedCall) -> AsyncIterator[None]:
        started_s = self._clock.monotonic()
        code = "OK"
        try:
            yield
        except grpc.aio.AbortError:
            code = call.context.code().name
            raise
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status
            meant = self._meant(error, call.method)
            code = meant.code.value
            await _abort(call.context, meant, error)
        finally:
            self._observe(call.method, code, self._clock.monotonic() - started_s)

    def _meant(self, error: Exception, method: str) -> TdpError:
        found = next(_tdp_errors(error), None)
        if found is not None:
            return found
        if isinstance(error, NotImplementedError):
            return UnimplementedError(f"{method} is in the contract but not offered here yet")
        error_id = self._ids.new_id()
        _log.error("rpc_failed_unexpectedly", method=method, error_id=error_id, exc_info=error)
        return InternalError(
            f"internal error {error_id}: report this id to the operator, whose log explains it",
            metadata={"error_id": error_id},
        )

    def _observe(self, method: str, code: str, duration_s: float) -> None:
        _log.debug("rpc_finished", method=method, code=code, duration_s=round(duration_s, 6))
        for observer in self._observers:
            observer.finished(method, code, duration_s)


class AuthenticationInterceptor(SurroundInterceptor):
    """Makes the principal of `authorization: Bearer <token>` current for the handler.

    `open_methods` need no credential: full names, or prefixes ending in "/".
    """

    def __init__(
        self, authenticator: Authenticator, open_methods: Iterable[str] = (HEALTH_METHODS,)
    ) -> None:
        super().__init__(self._authenticated)
        self._authenticator = authenticator
        self._open_methods = frozenset(open_methods)

    @asynccontextmanager
    async def _authenticated(self, call: ServedCall) -> AsyncIterator[None]:
        if self._is_open(call.method):
            yield
            return
        entered = enter_principal(await self._principal(call))
        try:
            yield
        finally:
            leave_principal(entered)

    def _is_open(self, method: str) -> bool:
        service = method[: method.rfind("/") + 1]
        return method in self._open_methods or service in self._open_methods

    async def _principal(self, call: ServedCall) -> Principal:
        token = _bearer_token(call.context)
        try:
            return await self._authenticator.authenticate(call.method, token)
        except TdpError:
            raise
        except Exception as error:
            # A caller must not give up its identity because our database was away.
            _log.warning("credential_check_failed", method=call.method, exc_info=error)
            raise UnavailableError(
                "the credential cannot be checked now: try again with the same one",
                reason="CREDENTIAL_CHECK_UNAVAILABLE",
                retry_delay_s=1.0,
            ) from error


def server_interceptors(
    *,
    ids: IdSource,
    clock: Clock,
    authenticator: Authenticator | None,
    open_methods: Iterable[str] = (HEALTH_METHODS,),
    observers: Sequence[RpcObserver] = (),
) -> tuple[grpc.aio.ServerInterceptor, ...]:
    """Return the interceptors in their order; without an authenticator every method is open."""
    chain: list[grpc.aio.ServerInterceptor] = [ErrorInterceptor(ids, clock, observers)]
    if authenticator is not None:
        chain.append(AuthenticationInterceptor(authenticator, open_methods))
    return tuple(chain)


async def _abort(context: Context, meant: TdpError, error: Exception) -> None:
    if context.done():
        # The caller is gone: there is nobody to answer, and nothing to report as a failure.
        raise asyncio.CancelledError from error
    status = to_status(meant)
    await context.abort(grpc_code(meant.code), status.message, trailing_metadata(status))


def _tdp_errors(error: BaseException) -> Iterator[TdpError]:
    """Yield the errors of ours in an exception, or in the leaves of a TaskGroup's group."""
    if isinstance(error, TdpError):
        yield error
    elif isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _tdp_errors(inner)


def _unknown_method(method: str) -> Handler:
    async def refuse(_requests: object, _context: object) -> None:
        raise UnimplementedError(
            f"{method[:200]} is not served here: check the service's name and this address",
            reason="METHOD_UNKNOWN",
        )

    # A stream of requests, so that the answer does not wait for a message.
    return grpc.stream_stream_rpc_method_handler(refuse)


def _bearer_token(context: Context) -> str:
    found = [value for key, value in context.invocation_metadata() or () if key == _AUTHORIZATION]
    if len(found) != 1:
        raise UnauthenticatedError(
            f"{len(found)} authorization metadata entries: send one, `Bearer <token>`",
            reason="CREDENTIAL_MISSING",
        )
    scheme, _, token = str(found[0]).partition(" ")
    if scheme.lower() != "bearer" or not token or len(token) > _TOKEN_CHARS_MAX:
        raise UnauthenticatedError(
            "the authorization metadata is not `Bearer <token>`", reason="CREDENTIAL_MALFORMED"
        )
    return token
