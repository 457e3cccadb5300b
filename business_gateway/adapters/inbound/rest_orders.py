"""Orders over REST: commands answered by 202, and pages."""

import json
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import JSONResponse

from business_gateway.adapters.inbound.rest_models import (
    OrderCancellation,
    OrderCreation,
    OrderDocument,
    OrderPageDocument,
    OrderRerun,
    problems,
)
from business_gateway.core.orders.application import OrderDraft, Orders
from business_gateway.core.orders.documents import order_document
from business_gateway.core.orders.ports import StoredAnswer
from business_gateway.core.orders.state_machine import OrderStatus

ORDERS_PATH = "/api/v1/orders"

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Required: one value for each intent."),
]


def order_router(orders: Orders, client: Callable[..., str]) -> APIRouter:
    """Return the routes that create, change and read orders."""
    router = APIRouter(prefix=ORDERS_PATH, tags=["orders"])
    _add_commands(router, orders, client)
    _add_reads(router, orders, client)
    return router


def _add_commands(router: APIRouter, orders: Orders, client: Callable[..., str]) -> None:
    @router.post(
        "",
        status_code=202,
        response_model=OrderDocument,
        responses=problems(400, 409, 413, 422),
        summary="Create an order",
    )
    async def create(
        body: OrderCreation,
        principal: Annotated[str, Depends(client)],
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        draft = OrderDraft(
            body.name, body.processing_mode, body.watermark_text, body.source_asset_id
        )
        return _answer(await orders.create(principal, idempotency_key, draft))

    @router.post(
        "/{order_id}/cancel",
        status_code=202,
        response_model=OrderDocument,
        responses={
            200: {"model": OrderDocument, "description": "Nothing is left to be cancelled."},
            **problems(400, 404, 409, 413, 422),
        },
        summary="Cancel an order; a finished one is answered as it is",
    )
    async def cancel(
        order_id: str,
        principal: Annotated[str, Depends(client)],
        body: OrderCancellation | None = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        reason = "" if body is None else body.reason
        return _answer(await orders.cancel(principal, idempotency_key, order_id, reason))

    @router.post(
        "/{order_id}/rerun",
        status_code=202,
        response_model=OrderDocument,
        responses=problems(400, 404, 409, 413, 422),
        summary="Run a finished order again",
    )
    async def rerun(
        order_id: str,
        principal: Annotated[str, Depends(client)],
        body: OrderRerun | None = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        asked = body or OrderRerun()
        return _answer(
            await orders.rerun(principal, idempotency_key, order_id, asked.mode, asked.reason)
        )


def _add_reads(router: APIRouter, orders: Orders, client: Callable[..., str]) -> None:
    @router.get(
        "",
        response_model=OrderPageDocument,
        responses=problems(400, 422),
        dependencies=[Depends(client)],
        summary="List orders, newest first",
    )
    async def page(
        status: Annotated[str, Query(description="Only orders in this status.")] = "",
        cursor: Annotated[str, Query(description="next_cursor of the page before.")] = "",
        page_size: Annotated[int, Query(description="1 to 200; 0 means 50.")] = 0,
    ) -> Response:
        found = await orders.page(status, cursor, page_size)
        documents = [order_document(one) for one in found.orders]
        return JSONResponse({"orders": documents, "next_cursor": found.next_cursor})

    @router.get(
        "/{order_id}",
        response_model=OrderDocument,
        responses={304: {"description": "It is still at this ETag."}, **problems(404, 422)},
        dependencies=[Depends(client)],
        summary="Read an order",
    )
    async def get(
        order_id: str,
        if_none_match: Annotated[str | None, Header(alias="If-None-Match")] = None,
    ) -> Response:
        order = await orders.get(order_id)
        etag = f'"{order.version}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if etag in {one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")}:
            return Response(status_code=304, headers=headers)
        return JSONResponse(order_document(order), headers=headers)


def _answer(answer: StoredAnswer) -> Response:
    """Return what was stored, so that a replay is the first answer byte for byte."""
    document = json.loads(answer.document)
    under_way = document["status"] in {
        OrderStatus.SUBMITTING,
        OrderStatus.PROCESSING,
        OrderStatus.CANCELING,
    }
    return Response(
        answer.document,
        202 if under_way else 200,
        {
            "Location": f"{ORDERS_PATH}/{answer.order_id}",
            "ETag": f'"{document["version"]}"',
            "Idempotency-Replayed": "true" if answer.replayed else "false",
            "Cache-Control": "no-store",
        },
        media_type="application/json",
    )
