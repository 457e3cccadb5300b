"""Compares uploaded bytes with what was declared of them."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from business_gateway.core.objects import ObjectFacts, ObjectStore
from business_gateway.core.resources.domain import Artifact, CommittedFile, mismatch

_HASHES_KEPT_MAX: Final = 10_000


class ByteVerifier:
    """Hashes a few objects at a time.

    What was hashed is remembered by key and ETag: a commit that outlasts its caller's patience
    is sent again, and then goes on where it was instead of from the start.
    """

    def __init__(self, objects: ObjectStore, *, hashes_max: int) -> None:
        self._objects = objects
        self._hashing = asyncio.Semaphore(hashes_max)
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    async def verify(self, pairs: Sequence[tuple[CommittedFile, Artifact]]) -> None:
        """Raise ArtifactMismatchError for the first file whose bytes are missing or differ."""
        verifications = [self._verify(file, artifact) for file, artifact in pairs]
        outcomes = await asyncio.gather(*verifications, return_exceptions=True)
        # One reason is enough: what the platform does about it is the same.
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _verify(self, file: CommittedFile, artifact: Artifact) -> None:
        async with self._hashing:
            facts = await self._objects.head(artifact.object_key)
            if facts is None:
                raise mismatch(file, "there are no bytes")
            if facts.size_bytes != file.size_bytes:
                raise mismatch(file, f"the store has {facts.size_bytes} bytes")
            sha256 = await self._sha256(artifact.object_key, facts)
            if sha256 != file.sha256:
                raise mismatch(file, f"the store's bytes have SHA-256 {sha256.hex()}")

    async def _sha256(self, key: str, facts: ObjectFacts) -> bytes:
        if facts.sha256 is not None:
            return facts.sha256
        known = self._known.get((key, facts.etag))
        if known is None:
            known = await self._objects.sha256_of(key, facts)
            self._known[(key, facts.etag)] = known
            if len(self._known) > _HASHES_KEPT_MAX:
                self._known.popitem(last=False)
        return known
