"""Small pictures of results: made when first asked for, kept in the store beside the results."""

from collections.abc import AsyncIterator
from typing import Final, Protocol

from business_gateway.core.errors import GatewayError
from business_gateway.core.objects import ObjectStore
from business_gateway.core.resources.domain import Artifact
from foundation.errors import NotFoundError

THUMBNAIL_MEDIA_TYPE: Final = "image/webp"
THUMBNAIL_BYTES_MAX: Final = 512 * 1024
SOURCE_BYTES_MAX: Final = 32 * 1024 * 1024
PICTURE_MEDIA_TYPES: Final = frozenset(
    {"image/bmp", "image/gif", "image/jpeg", "image/png", "image/tiff", "image/webp"}
)


class ThumbnailUnavailableError(GatewayError, NotFoundError):
    """There is no small picture of this result: it is no picture, too large, or unreadable."""

    reason = "THUMBNAIL_UNAVAILABLE"


class ThumbnailMaker(Protocol):
    """Makes a small picture of a large one, in bounded time and memory."""

    async def make(self, picture: bytes) -> bytes | None:
        """Return it as THUMBNAIL_MEDIA_TYPE; None for bytes that are no sound picture."""
        ...


class Thumbnails:
    """Answers small pictures."""

    def __init__(self, objects: ObjectStore, maker: ThumbnailMaker) -> None:
        self._objects = objects
        self._maker = maker

    async def of(self, artifact: Artifact) -> bytes:
        """Return the small picture of a committed artifact; ThumbnailUnavailableError."""
        key = f"thumbnails/{artifact.order_id}/{artifact.artifact_id}.webp"
        if await self._objects.head(key) is not None:
            return await self._objects.read_start(key, THUMBNAIL_BYTES_MAX)
        size_bytes = artifact.size_bytes or 0
        if artifact.media_type not in PICTURE_MEDIA_TYPES or size_bytes > SOURCE_BYTES_MAX:
            raise _unavailable(artifact, "it is no picture, or too large a file")
        picture = await self._objects.read_start(artifact.object_key, SOURCE_BYTES_MAX)
        thumbnail = await self._maker.make(picture)
        if thumbnail is None or len(thumbnail) > THUMBNAIL_BYTES_MAX:
            raise _unavailable(artifact, "it cannot be read as a picture")
        # Two that make it at once write the same bytes under the same key.
        await self._objects.put_stream(key, _one_chunk(thumbnail), THUMBNAIL_MEDIA_TYPE)
        return thumbnail


async def _one_chunk(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _unavailable(artifact: Artifact, why: str) -> ThumbnailUnavailableError:
    return ThumbnailUnavailableError(f"artifact {artifact.artifact_id} has no small picture: {why}")
