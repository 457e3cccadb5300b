"""An order's journey over REST: live changes as server-sent events, and its evidence."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Response
from fastapi.responses import JSONResponse, StreamingResponse

from business_gateway.adapters.inbound.rest_models import (
    LadderDocument,
    OrderChangeDocument,
    problems,
)
from business_gateway.adapters.inbound.rest_orders import ORDERS_PATH
from business_gateway.core.orders.application import Orders
from business_gateway.core.orders.documents import change_document, document_text, time_text
from business_gateway.core.orders.domain import OrderChange
from business_gateway.core.orders.evidence import OrderLadder, Rung
from business_gateway.core.orders.journeys import Journeys
from foundation.errors import InvalidArgumentError

EVENT_STREAM: Final = "text/event-stream"
_RECONNECT_MS: Final = 2_000
_VERSION_DIGITS_MAX: Final = 18


def journey_router(orders: Orders, journeys: Journeys, client: Callable[..., str]) -> APIRouter:
    """Return the routes of live events and of evidence."""
    router = APIRouter(prefix=ORDERS_PATH, tags=["journey"], dependencies=[Depends(client)])

    @router.get(
        "/{order_id}/events",
        response_class=StreamingResponse,
        responses={
            200: {
                "model": OrderChangeDocument,
                "description": "Events named `order`; id is the order's version.",
                "content": {EVENT_STREAM: {}},
            },
            **problems(404, 422),
        },
        summary="Follow an order live, from now or from after Last-Event-ID",
    )
    async def events(
        order_id: str,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    ) -> Response:
        after_version = _version(last_event_id)
        order = await orders.get(order_id)
        changes = journeys.changes(order.order_id, after_version)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_event_stream(changes), 200, headers, media_type=EVENT_STREAM)

    @router.get(
        "/{order_id}/evidence",
        response_model=LadderDocument,
        responses=problems(404, 422),
        summary="The durable evidence of an order's journey, hop by hop",
    )
    async def evidence(order_id: str) -> Response:
        return JSONResponse(ladder_document(await journeys.ladder(order_id)))

    return router


def ladder_document(ladder: OrderLadder) -> dict[str, object]:
    """Return the ladder as clients read it."""
    return {
        "order_id": ladder.order_id,
        "verdict": ladder.verdict,
        "platform_reached": ladder.platform_reached,
        "rungs": [_rung_document(one) for one in ladder.rungs],
    }


def _rung_document(rung: Rung) -> dict[str, object]:
    disturbances = [
        {**asdict(one), "occurred_at": time_text(one.occurred_at)} for one in rung.disturbances
    ]
    return {
        **asdict(rung),
        "state": rung.state.value,
        "durable_at": time_text(rung.durable_at),
        "disturbances": disturbances,
    }


async def _event_stream(changes: AsyncGenerator[OrderChange | None, None]) -> AsyncIterator[str]:
    yield f"retry: {_RECONNECT_MS}\n\n"
    async with aclosing(changes) as source:
        async for change in source:
            if change is None:
                # Says to proxies that the connection lives.
                yield ": waiting\n\n"
            else:
                text = document_text(change_document(change))
                yield f"id: {change.version}\nevent: order\ndata: {text}\n\n"


def _version(last_event_id: str | None) -> int | None:
    if last_event_id is None or last_event_id == "":
        return None
    if not last_event_id.isdecimal() or len(last_event_id) > _VERSION_DIGITS_MAX:
        raise InvalidArgumentError.of_field(
            "Last-Event-ID", f"{last_event_id[:64]!r} is not the id of an event: leave it out"
        )
    return int(last_event_id)
