"""The object store as the gateway's areas see it: keys, facts about bytes, short grants."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

ZIP_MEDIA_TYPE: Final = "application/zip"


class GrantMethod(StrEnum):
    """What a presigned URL allows."""

    GET = "GET"
    PUT = "PUT"


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What the store says of an object.

    `sha256` is given only where the store itself checked the whole object's bytes against it.
    """

    size_bytes: int
    etag: str
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class StreamedObject:
    """What passed through us into the store."""

    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class PresignedRequest:
    """A request that anyone may send until `expires_at`: a secret until then, never logged."""

    method: GrantMethod
    url: str
    headers: Mapping[str, str]
    expires_at: datetime


class ObjectStore(Protocol):
    """One bucket. What asks the store raises ObjectStoreUnavailableError when it fails."""

    async def head(self, key: str) -> ObjectFacts | None:
        """Return the object's facts, None where there is none."""
        ...

    async def read_start(self, key: str, size_bytes: int) -> bytes:
        """Return the first bytes of an object that exists, fewer where it is shorter."""
        ...

    async def sha256_of(self, key: str, facts: ObjectFacts) -> bytes:
        """Hash the object's bytes by streaming them.

        Resumes after a broken connection. Raises ObjectStoreUnavailableError also when the
        object is no longer the one that `facts` describe.
        """
        ...

    async def put_stream(
        self, key: str, chunks: AsyncIterator[bytes], media_type: str
    ) -> StreamedObject:
        """Store a stream of unknown length under the key, with bounded memory.

        When anything is raised, by `chunks` too, nothing is stored.
        """
        ...

    async def copy(self, source_key: str, target_key: str) -> bool:
        """Copy within the store, without the bytes passing through us; False without a source."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; one that is not there is removed already."""
        ...

    def presign_put(self, key: str, media_type: str, valid_s: int) -> PresignedRequest:
        """Allow writing the object for `valid_s` seconds from now."""
        ...

    def presign_get(self, key: str, valid_s: int, download_name: str = "") -> PresignedRequest:
        """Allow reading the object for `valid_s` seconds; a name makes browsers save it so."""
        ...
