"""What the page asks beside the public interface: the platform, queues, and one live stream."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from business_gateway.adapters.inbound.rest_console import CONSOLE_PATH, session_required
from business_gateway.adapters.inbound.rest_journeys import EVENT_STREAM
from business_gateway.adapters.inbound.rest_security import check_csrf
from business_gateway.core.console.errors import SessionForbiddenError
from business_gateway.core.console.ports import (
    AllOrdersFeed,
    ConsoleTables,
    Document,
    PlatformDesk,
)
from business_gateway.core.console.sessions import Session, Sessions
from business_gateway.core.orders.application import Orders
from business_gateway.core.orders.documents import document_text, order_document
from foundation.errors import TdpError
from foundation.ids import parse_id

WAITING_MAX: Final = 50
CALLBACKS_PAGE: Final = 50
# A burst of changes is told in batches this far apart, so that a tab is drawn a few times a second.
STREAM_PAUSE_S: Final = 0.25
_NOT_STORED: Final = {"Cache-Control": "no-store"}


class WaitingQuestion(BaseModel):
    """Tasks of whose executions the page wants to know what they wait for."""

    model_config = ConfigDict(extra="forbid")

    task_ids: list[str] = Field(max_length=WAITING_MAX)


def desk_router(
    sessions: Sessions, desk: PlatformDesk, tables: ConsoleTables, orders: Orders
) -> APIRouter:
    """Return the routes that show the platform and the gateway's own queues."""
    signed_in = session_required(sessions)
    router = APIRouter(
        prefix=f"{CONSOLE_PATH}/api", include_in_schema=False, dependencies=[Depends(signed_in)]
    )

    @router.get("/orders/{order_id}/platform")
    async def platform(order_id: str) -> Response:
        """Show what the platform knows of an order; its silence is shown, not raised."""
        order = await orders.get(order_id)
        found: Document = {"changes": await tables.changes(order.order_id), "problem": ""}
        if order.task_id is not None:
            try:
                found |= await desk.task_details(order.task_id)
            except TdpError as error:
                found["problem"] = error.message
        return JSONResponse({**found, "known": "task" in found}, headers=_NOT_STORED)

    @router.post("/waiting")
    async def waiting(body: WaitingQuestion) -> Response:
        found = await desk.waiting([parse_id(one, "task_ids") for one in body.task_ids])
        return JSONResponse(found, headers=_NOT_STORED)

    @router.get("/queues")
    async def queues() -> Response:
        return JSONResponse(await tables.queues(), headers=_NOT_STORED)

    @router.get("/callbacks")
    async def callbacks(before: Annotated[str, Query()] = "") -> Response:
        position = parse_id(before, "before") if before else None
        found = await tables.callbacks(position, CALLBACKS_PAGE)
        more = found[-1]["event_id"] if len(found) == CALLBACKS_PAGE else ""
        return JSONResponse({"callbacks": list(found), "next_before": more}, headers=_NOT_STORED)

    @router.post("/rpc/{service}/{method}")
    async def call(
        service: str,
        method: str,
        request: Request,
        session: Annotated[Session, Depends(signed_in)],
        body: Annotated[dict[str, Any], Body()],
    ) -> Response:
        """Call the control plane in the operator's own name."""
        check_csrf(request, session)
        if not session.is_operator:
            raise SessionForbiddenError("this needs an operator's key: add yours to the session")
        found = await desk.call(f"{service}/{method}", body, session.operator_key)
        return JSONResponse(found, headers=_NOT_STORED)

    return router


def stream_router(
    sessions: Sessions, feed: AllOrdersFeed, tables: ConsoleTables, *, recheck_s: float
) -> APIRouter:
    """Return the one live stream of a tab.

    It begins with `hello`, upon which the page reads anew what it shows: so nothing that
    happened while it was cut off is missed. `order` carries an order that changed, `many` says
    that too many did to be told singly, and `tick` comes every `recheck_s` seconds, for what other
    replicas and the platform changed.
    """
    router = APIRouter(
        prefix=f"{CONSOLE_PATH}/api",
        include_in_schema=False,
        dependencies=[Depends(session_required(sessions))],
    )

    @router.get("/stream")
    async def stream() -> Response:
        headers = {**_NOT_STORED, "X-Accel-Buffering": "no"}
        events = _events(feed, tables, recheck_s)
        return StreamingResponse(events, 200, headers, media_type=EVENT_STREAM)

    return router


async def _events(
    feed: AllOrdersFeed, tables: ConsoleTables, recheck_s: float
) -> AsyncIterator[str]:
    with feed.watch_all() as changed:
        yield "retry: 2000\n\nevent: hello\ndata: {}\n\n"
        while not feed.closed:
            if not await changed.wakeup.wait(recheck_s):
                yield "event: tick\ndata: {}\n\n"
                continue
            order_ids, overflowed = changed.take()
            if overflowed:
                yield "event: many\ndata: {}\n\n"
            elif order_ids:
                yield await _order_events(tables, order_ids)
            await asyncio.sleep(STREAM_PAUSE_S)


async def _order_events(tables: ConsoleTables, order_ids: Sequence[str]) -> str:
    found = await tables.orders(order_ids)
    texts = [document_text(order_document(one)) for one in found]
    return "".join(f"event: order\ndata: {text}\n\n" for text in texts)
