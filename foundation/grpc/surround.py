"""The one way our server interceptors work: an async context manager around each call.

All four kinds of handler are covered, and both ways to write a streaming one: an async
generator, or a coroutine that uses context.read and context.write.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import grpc

# In quotes: the stubs are generic where the run-time classes are not.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"


@dataclass(frozen=True, slots=True)
class ServedCall:
    """One call being served: full method name and context."""

    method: str
    context: Context


Around = Callable[[ServedCall], AbstractAsyncContextManager[None]]


class SurroundInterceptor(grpc.aio.ServerInterceptor):
    """Runs every handler inside the context manager that `around` makes for the call."""

    def __init__(self, around: Around) -> None:
        self._around = around

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the handler with the context manager around its behaviour."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return _surrounded(handler, handler_call_details.method, self._around)


def _surrounded(handler: Handler, method: str, around: Around) -> Handler:
    kind = ("stream" if handler.request_streaming else "unary") + (
        "_stream" if handler.response_streaming else "_unary"
    )
    run = _run_streaming if handler.response_streaming else _run_unary
    make: Callable[..., Handler] = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(
        # Binding keeps it a coroutine function in gRPC's eyes, which decides how it is run.
        partial(run, getattr(handler, kind), method, around),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


async def _run_unary(
    behaviour: Callable[[Any, Any], Any],
    method: str,
    around: Around,
    request: object,
    context: Context,
) -> object:
    async with around(ServedCall(method, context)):
        answer = behaviour(request, context)
        return await answer if inspect.isawaitable(answer) else answer


async def _run_streaming(
    behaviour: Callable[[Any, Any], Any],
    method: str,
    around: Around,
    request: object,
    context: Context,
) -> None:
    async with around(ServedCall(method, context)):
        answers = behaviour(request, context)
        if inspect.isasyncgen(answers):
            async with aclosing(answers):
                async for answer in answers:
                    await context.write(answer)
        elif inspect.isawaitable(answers):
            await answers
