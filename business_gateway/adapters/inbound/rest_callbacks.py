"""Callbacks over HTTP: the raw body is bounded, then its signature decides before it is read."""

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from business_gateway.adapters.inbound.rest_models import problems
from business_gateway.core.callbacks.application import CallbackIntake
from business_gateway.core.callbacks.envelope import BODY_BYTES_MAX, CallbackTooLargeError
from business_gateway.core.errors import GatewayError
from foundation.errors import DeadlineExceededError
from foundation.failpoints import failpoint
from foundation.signatures import SIGNATURE_HEADER

CALLBACKS_PATH: Final = "/callbacks"
BODY_TIMEOUT_S: Final = 15.0


class CallbackSlowError(GatewayError, DeadlineExceededError):
    """The body did not arrive in time; nothing of it was kept. Deliver it again."""

    reason = "CALLBACK_SLOW"


def callback_router(intake: CallbackIntake) -> APIRouter:
    """Return the route of deliveries; it needs no API key, the signature speaks for the sender."""
    router = APIRouter(tags=["callbacks"])

    @router.post(
        CALLBACKS_PATH,
        responses={200: {"description": "The event is durable."}, **problems(401, 413, 422, 503)},
        summary="Take one execution event (CloudEvents 1.0 JSON), signed over the raw body",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/cloudevents+json": {"schema": {"type": "object"}}},
            }
        },
    )
    async def deliver(
        request: Request,
        signature: Annotated[
            str | None,
            Header(alias=SIGNATURE_HEADER, description="t=<unix seconds>,v1=<hex HMAC-SHA256>"),
        ] = None,
    ) -> JSONResponse:
        duplicate = await intake.receive(signature, await _body(request))
        await failpoint("gateway.callback.reply.before")
        return JSONResponse({"duplicate": duplicate})

    return router


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                size_bytes += len(part)
                if size_bytes > BODY_BYTES_MAX:
                    raise CallbackTooLargeError(
                        f"the body has more than {BODY_BYTES_MAX} bytes: it cannot be taken"
                    )
                parts.append(part)
    except (TimeoutError, ClientDisconnect):
        raise CallbackSlowError(
            f"the body was not complete within {BODY_TIMEOUT_S:g} s: deliver it again"
        ) from None
    return b"".join(parts)
