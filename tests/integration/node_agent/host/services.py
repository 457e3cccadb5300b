"""The core's part, played for one attempt: grants from a real object store, all else kept."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from node_agent.core.execution.ports import (
    AllocatedArtifact,
    ArtifactRequest,
    AttemptServices,
    Grant,
    UploadedArtifact,
)
from tools.dev_stack import ObjectStoreAccess


@dataclass
class Store:
    """A bucket with presigned URLs; known hashes are put into grants."""

    client: Any
    access: ObjectStoreAccess
    rewrite: Callable[[str], str] = lambda url: url
    sizes: dict[str, int] = field(default_factory=dict)
    hashes: dict[str, bytes] = field(default_factory=dict)
    expires_in_s: int = 600

    async def put(self, key: str, data: bytes) -> None:
        await self.client.put_object(Bucket=self.access.bucket, Key=key, Body=data)

    async def get(self, key: str) -> bytes:
        answer = await self.client.get_object(Bucket=self.access.bucket, Key=key)
        data: bytes = await answer["Body"].read()
        return data

    async def grant(self, key: str, method: str, size_bytes: int = 0) -> Grant:
        operation = "get_object" if method == "GET" else "put_object"
        url = await self.client.generate_presigned_url(
            operation,
            Params={"Bucket": self.access.bucket, "Key": key},
            ExpiresIn=self.expires_in_s,
        )
        return Grant(
            grant_id=f"grant-{key}",
            resource_ref=key,
            method="GET" if method == "GET" else "PUT",
            url=self.rewrite(url),
            headers={},
            expires_at=datetime.now(UTC) + timedelta(seconds=self.expires_in_s),
            size_bytes=self.sizes.get(key, size_bytes),
            sha256=self.hashes.get(key, b""),
        )


def client_of(access: ObjectStoreAccess) -> Any:  # noqa: ANN401 - the library has no types
    # Here, since it takes long to import and most users of this module need no store.
    import aioboto3
    from botocore.config import Config

    return aioboto3.Session().client(
        "s3",
        endpoint_url=access.endpoint_url,
        aws_access_key_id=access.access_key,
        aws_secret_access_key=access.secret_key,
        region_name=access.region,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
        ),
    )


@dataclass
class RecordedServices(AttemptServices):
    """Remembers what the work told, and gives grants of the store."""

    store: Store | None = None
    checkpoint_json: str | None = None
    checkpoints: list[str] = field(default_factory=list)
    reported: list[UploadedArtifact] = field(default_factory=list)
    report_sizes: list[int] = field(default_factory=list)
    progresses: list[tuple[int, str]] = field(default_factory=list)
    authorize_count: int = 0
    allocate_count: int = 0
    refusal: Exception | None = None
    first_progress: asyncio.Event = field(default_factory=asyncio.Event)
    on_checkpoint: Callable[[int], None] = lambda _count: None

    async def progress(self, percent: int, message: str) -> None:
        self.progresses.append((percent, message))
        self.first_progress.set()

    async def save_checkpoint(self, document_json: str) -> None:
        self.checkpoint_json = document_json
        self.checkpoints.append(document_json)
        self.on_checkpoint(len(self.checkpoints))

    async def authorize(self, resource_ref: str) -> Grant:
        self.authorize_count += 1
        if self.refusal is not None:
            raise self.refusal
        assert self.store is not None
        return await self.store.grant(resource_ref, "GET")

    async def allocate(
        self, collection_ref: str, requests: Sequence[ArtifactRequest]
    ) -> Sequence[AllocatedArtifact]:
        self.allocate_count += 1
        assert self.store is not None
        return [
            AllocatedArtifact(
                request.relative_path,
                f"{collection_ref}/{request.relative_path}",
                await self.store.grant(
                    f"{collection_ref}/{request.relative_path}", "PUT", request.size_bytes_max
                ),
            )
            for request in requests
        ]

    async def uploaded(self, artifacts: Sequence[UploadedArtifact]) -> None:
        self.reported.extend(artifacts)
        self.report_sizes.append(len(artifacts))
