"""Assets over REST."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from business_gateway.adapters.inbound.rest_models import (
    AnnouncedAsset,
    AssetAnnouncement,
    AssetDocument,
    problems,
)
from business_gateway.core.assets.application import Assets
from business_gateway.core.assets.domain import Asset
from business_gateway.core.objects import PresignedRequest
from business_gateway.core.orders.documents import time_text

ASSETS_PATH = "/api/v1/assets"
UPLOAD_PATH = f"{ASSETS_PATH}/content"


def asset_router(assets: Assets, client: Callable[..., str]) -> APIRouter:
    """Return the routes of assets."""
    router = APIRouter(prefix=ASSETS_PATH, tags=["assets"], dependencies=[Depends(client)])

    @router.post(
        "",
        status_code=201,
        response_model=AnnouncedAsset,
        responses=problems(400, 413, 422),
        summary="Announce a file and get a URL to upload it to",
    )
    async def announce(body: AssetAnnouncement) -> Response:
        asset, upload = await assets.announce(body.name, body.size_bytes, body.sha256)
        document = {"asset": asset_document(asset), "upload": _upload_document(upload)}
        headers = {"Location": _location(asset), "Cache-Control": "no-store"}
        return JSONResponse(document, 201, headers)

    @router.post(
        "/content",
        status_code=201,
        response_model=AssetDocument,
        responses=problems(400, 413, 422),
        summary="Upload a file through the gateway; it is READY at once",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def upload(
        request: Request,
        name: Annotated[str, Query(description="1 to 200 characters after trimming.")],
        sha256: Annotated[str, Query(description="64 hexadecimal digits; checked.")] = "",
    ) -> Response:
        asset = await assets.upload(name, sha256, request.stream())
        return JSONResponse(asset_document(asset), 201, {"Location": _location(asset)})

    @router.post(
        "/{asset_id}/complete",
        response_model=AssetDocument,
        responses=problems(404, 409, 422),
        summary="Verify what was uploaded: READY, or REJECTED with the reason",
    )
    async def complete(asset_id: str) -> Response:
        return JSONResponse(asset_document(await assets.complete(asset_id)))

    @router.get(
        "/{asset_id}",
        response_model=AssetDocument,
        responses=problems(404, 422),
        summary="Read an asset",
    )
    async def get(asset_id: str) -> Response:
        return JSONResponse(asset_document(await assets.get(asset_id)))

    return router


def asset_document(asset: Asset) -> dict[str, object]:
    """Return an asset as clients read it."""
    return {
        "asset_id": asset.asset_id,
        "name": asset.name,
        "state": asset.state.value,
        "media_type": asset.media_type,
        "size_bytes": asset.size_bytes,
        "sha256": None if asset.sha256 is None else asset.sha256.hex(),
        "rejection_reason": asset.rejection_reason,
        "rejection_message": asset.rejection_message,
        "created_at": time_text(asset.created_at),
        "decided_at": time_text(asset.decided_at),
    }


def _upload_document(upload: PresignedRequest) -> dict[str, object]:
    return {
        "method": upload.method.value,
        "url": upload.url,
        "headers": dict(upload.headers),
        "expires_at": time_text(upload.expires_at),
    }


def _location(asset: Asset) -> str:
    return f"{ASSETS_PATH}/{asset.asset_id}"
