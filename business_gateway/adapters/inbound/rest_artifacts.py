"""An order's results over REST."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse, RedirectResponse

from business_gateway.adapters.inbound.rest_models import ArtifactPageDocument, problems
from business_gateway.adapters.inbound.rest_orders import ORDERS_PATH
from business_gateway.core.orders.documents import time_text
from business_gateway.core.resources.application import Artifacts
from business_gateway.core.resources.domain import Artifact
from business_gateway.core.resources.thumbnails import THUMBNAIL_MEDIA_TYPE, Thumbnails


def artifact_router(
    artifacts: Artifacts, thumbnails: Thumbnails, client: Callable[..., str]
) -> APIRouter:
    """Return the routes of results."""
    router = APIRouter(prefix=ORDERS_PATH, tags=["artifacts"], dependencies=[Depends(client)])

    @router.get(
        "/{order_id}/artifacts",
        response_model=ArtifactPageDocument,
        responses=problems(400, 404, 422),
        summary="List an order's results by path",
    )
    async def page(
        order_id: str,
        cursor: Annotated[str, Query(description="next_cursor of the page before.")] = "",
        page_size: Annotated[int, Query(description="1 to 200; 0 means 50.")] = 0,
    ) -> Response:
        found = await artifacts.page(order_id, cursor, page_size)
        documents = [artifact_document(one) for one in found.artifacts]
        return JSONResponse({"artifacts": documents, "next_cursor": found.next_cursor})

    @router.get(
        "/{order_id}/artifacts/{artifact_id}/download",
        status_code=307,
        response_class=RedirectResponse,
        responses={
            307: {"description": "Where the bytes are, for a few minutes."},
            **problems(404, 422),
        },
        summary="Download a result",
    )
    async def download(order_id: str, artifact_id: str) -> Response:
        request = await artifacts.download(order_id, artifact_id)
        return RedirectResponse(request.url, 307, {"Cache-Control": "no-store"})

    @router.get(
        "/{order_id}/artifacts/{artifact_id}/thumbnail",
        response_class=Response,
        responses={
            200: {
                "description": "The picture within 480 x 480 pixels.",
                "content": {THUMBNAIL_MEDIA_TYPE: {}},
            },
            **problems(404, 422),
        },
        summary="Show a result that is a picture, small",
    )
    async def thumbnail(order_id: str, artifact_id: str) -> Response:
        content = await thumbnails.of(await artifacts.committed(order_id, artifact_id))
        # A committed artifact never changes, and so its small picture neither.
        headers = {"Cache-Control": "private, max-age=86400, immutable"}
        return Response(content, 200, headers, THUMBNAIL_MEDIA_TYPE)

    return router


def artifact_document(artifact: Artifact) -> dict[str, object]:
    """Return a result as clients read it."""
    return {
        "artifact_id": artifact.artifact_id,
        "order_id": artifact.order_id,
        "execution_id": artifact.execution_id,
        "step_key": artifact.step_key,
        "relative_path": artifact.relative_path,
        "type": artifact.type,
        "media_type": artifact.media_type,
        "size_bytes": artifact.size_bytes,
        "sha256": None if artifact.sha256 is None else artifact.sha256.hex(),
        "committed_at": time_text(artifact.committed_at),
    }
