"""The use cases of assets: announce, upload through, complete, read."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from business_gateway.core.assets.domain import (
    ZIP_MAGIC_BYTES,
    Asset,
    AssetId,
    AssetNotUploadedError,
    AssetRejectedError,
    AssetState,
    NewAsset,
    Rejection,
    Verdict,
    checked_asset_name,
    checked_declared_size,
    checked_sha256,
    hash_rejection,
    magic_rejection,
    object_key,
    size_rejection,
    too_large,
    upload_key,
)
from business_gateway.core.assets.ports import AssetStore
from business_gateway.core.objects import (
    ZIP_MEDIA_TYPE,
    ObjectFacts,
    ObjectStore,
    PresignedRequest,
)
from foundation.failpoints import failpoint
from foundation.ids import IdSource, parse_id


@dataclass(frozen=True, slots=True)
class AssetLimits:
    """The most bytes of an asset, and how long its upload URL and a verification last."""

    size_bytes_max: int
    upload_valid_s: int = 3_600
    verification_ttl_s: float = 900.0


class Assets:
    """What a client does with assets."""

    def __init__(
        self, store: AssetStore, objects: ObjectStore, ids: IdSource, limits: AssetLimits
    ) -> None:
        self._store = store
        self._objects = objects
        self._ids = ids
        self._limits = limits

    async def announce(
        self, name: str, size_bytes: int, sha256_hex: str
    ) -> tuple[Asset, PresignedRequest]:
        """Store an asset to come and allow its upload; InvalidArgumentError, AssetTooLargeError."""
        asset = NewAsset(
            asset_id=self._new_id(),
            name=checked_asset_name(name),
            declared_size_bytes=checked_declared_size(size_bytes, self._limits.size_bytes_max),
            declared_sha256=checked_sha256(sha256_hex),
        )
        upload = self._objects.presign_put(
            upload_key(asset.asset_id), ZIP_MEDIA_TYPE, self._limits.upload_valid_s
        )
        return await self._store.add(asset), upload

    async def upload(self, name: str, sha256_hex: str, chunks: AsyncIterator[bytes]) -> Asset:
        """Take the bytes through us, hashing on the way; READY at once.

        Raises AssetRejectedError, AssetTooLargeError, InvalidArgumentError; then nothing is kept.
        """
        asset = NewAsset(
            self._new_id(), checked_asset_name(name), declared_sha256=checked_sha256(sha256_hex)
        )
        await self._store.add(asset)
        try:
            verdict = await self._stored_through(asset, chunks)
        except BaseException:
            await self._objects.delete(object_key(asset.asset_id))
            await self._store.remove(asset.asset_id)
            raise
        await failpoint("asset.ready.before")
        ready = await self._store.decide(asset.asset_id, verdict)
        await failpoint("asset.ready.after")
        return ready

    async def complete(self, asset_id: str) -> Asset:
        """Verify what was uploaded: READY, or REJECTED with the reason; repeats answer the same.

        Raises AssetNotFoundError, AssetNotUploadedError, AssetBeingVerifiedError.
        """
        wanted = AssetId(parse_id(asset_id, "asset_id"))
        asset = await self._store.claim_verification(wanted, self._limits.verification_ttl_s)
        if asset.state is not AssetState.UPLOADING:
            # The first verdict may have died before it could tidy up.
            await self._objects.delete(upload_key(asset.asset_id))
            return asset
        try:
            decided = await self._verified(asset)
        except Exception:
            await self._store.release_verification(asset.asset_id)
            raise
        await self._objects.delete(upload_key(asset.asset_id))
        if decided.state is AssetState.REJECTED:
            await self._objects.delete(object_key(asset.asset_id))
        return decided

    async def get(self, asset_id: str) -> Asset:
        """Read one; AssetNotFoundError."""
        return await self._store.get(AssetId(parse_id(asset_id, "asset_id")))

    def _new_id(self) -> AssetId:
        return AssetId(self._ids.new_id())

    async def _stored_through(self, asset: NewAsset, chunks: AsyncIterator[bytes]) -> Verdict:
        stored = await self._objects.put_stream(
            object_key(asset.asset_id),
            _zip_only(_bounded(chunks, self._limits.size_bytes_max)),
            ZIP_MEDIA_TYPE,
        )
        _refuse(hash_rejection(stored.sha256, asset.declared_sha256))
        return Verdict(stored.size_bytes, stored.sha256)

    async def _verified(self, asset: Asset) -> Asset:
        facts = await self._taken_over(asset)
        verdict = await self._verdict(asset, facts)
        await failpoint("asset.ready.before")
        decided = await self._store.decide(asset.asset_id, verdict)
        await failpoint("asset.ready.after")
        return decided

    async def _taken_over(self, asset: Asset) -> ObjectFacts:
        """Copy the upload to where its URL cannot write, and only then look at it."""
        uploaded = await self._objects.head(upload_key(asset.asset_id))
        kept = object_key(asset.asset_id)
        if uploaded is not None and uploaded.size_bytes <= self._limits.size_bytes_max:
            copied = await self._objects.copy(upload_key(asset.asset_id), kept)
            uploaded = await self._objects.head(kept) if copied else None
        if uploaded is None:
            raise AssetNotUploadedError(
                f"asset {asset.asset_id} has no bytes yet: send them to its upload URL, or "
                "announce a new asset if that has expired"
            )
        return uploaded

    async def _verdict(self, asset: Asset, facts: ObjectFacts) -> Verdict:
        rejection = size_rejection(
            facts.size_bytes, asset.declared_size_bytes, self._limits.size_bytes_max
        )
        sha256 = facts.sha256
        key = object_key(asset.asset_id)
        if rejection is None:
            rejection = magic_rejection(await self._objects.read_start(key, ZIP_MAGIC_BYTES))
        if rejection is None and asset.declared_sha256 is not None:
            sha256 = sha256 or await self._objects.sha256_of(key, facts)
            rejection = hash_rejection(sha256, asset.declared_sha256)
        return Verdict(facts.size_bytes, sha256, rejection)


async def _bounded(chunks: AsyncIterator[bytes], size_bytes_max: int) -> AsyncIterator[bytes]:
    size_bytes = 0
    async for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > size_bytes_max:
            raise too_large(size_bytes_max)
        yield chunk


async def _zip_only(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Pass the chunks on, refusing before the first byte is stored what is no ZIP."""
    first = b""
    async for chunk in chunks:
        if len(first) < ZIP_MAGIC_BYTES:
            first += chunk
            if len(first) < ZIP_MAGIC_BYTES:
                continue
            _refuse(magic_rejection(first))
            yield first
        else:
            yield chunk
    if len(first) < ZIP_MAGIC_BYTES:
        _refuse(magic_rejection(first))


def _refuse(rejection: Rejection | None) -> None:
    if rejection is not None:
        raise AssetRejectedError(rejection.message, reason=rejection.reason.value)
