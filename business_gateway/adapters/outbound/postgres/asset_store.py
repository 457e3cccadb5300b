"""Assets on PostgreSQL."""

from collections.abc import Sequence
from typing import Final

from business_gateway.core.assets.domain import (
    Asset,
    AssetBeingVerifiedError,
    AssetId,
    AssetNotFoundError,
    AssetState,
    NewAsset,
    Verdict,
    object_key,
)
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database, Record

_SQL: Final = NamedSql.load("business_gateway.sql.queries", "assets.sql")


class PostgresAssetStore:
    """Implements AssetStore and LeftUploadStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, asset: NewAsset) -> Asset:
        """See AssetStore."""
        row = await self._database.fetchrow(
            _SQL.insert_asset,
            asset.asset_id,
            asset.name,
            object_key(asset.asset_id),
            asset.declared_size_bytes,
            asset.declared_sha256,
        )
        assert row is not None
        return _asset(row)

    async def get(self, asset_id: AssetId) -> Asset:
        """See AssetStore."""
        row = await self._database.fetchrow(_SQL.get_asset, asset_id)
        if row is None:
            raise AssetNotFoundError(f"there is no asset {asset_id}: check its id")
        return _asset(row)

    async def claim_verification(self, asset_id: AssetId, ttl_s: float) -> Asset:
        """See AssetStore."""
        row = await self._database.fetchrow(_SQL.claim_verification, asset_id, ttl_s)
        if row is not None:
            return _asset(row)
        asset = await self.get(asset_id)
        if asset.state is AssetState.UPLOADING:
            raise AssetBeingVerifiedError(
                f"asset {asset_id} is being verified by another request: ask again in a moment",
                retry_delay_s=1.0,
            )
        return asset

    async def release_verification(self, asset_id: AssetId) -> None:
        """See AssetStore."""
        await self._database.fetch(_SQL.release_verification, asset_id)

    async def decide(self, asset_id: AssetId, verdict: Verdict) -> Asset:
        """See AssetStore."""
        rejection = verdict.rejection
        row = await self._database.fetchrow(
            _SQL.decide_asset,
            asset_id,
            verdict.state.value,
            verdict.size_bytes,
            verdict.sha256,
            None if rejection is None else rejection.reason.value,
            None if rejection is None else rejection.message,
        )
        return await self.get(asset_id) if row is None else _asset(row)

    async def remove(self, asset_id: AssetId) -> None:
        """See AssetStore."""
        await self._database.fetch(_SQL.remove_asset, asset_id)

    async def left_uploads(self, older_than_s: float, limit: int) -> Sequence[Asset]:
        """See LeftUploadStore."""
        rows = await self._database.fetch(_SQL.left_uploads, older_than_s, limit)
        return [_asset(row) for row in rows]


def _asset(row: Record) -> Asset:
    return Asset(
        asset_id=AssetId(str(row["asset_id"])),
        name=row["name"],
        state=AssetState(row["state"]),
        declared_size_bytes=row["declared_size_bytes"],
        declared_sha256=row["declared_sha256"],
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        rejection_reason=row["rejection_reason"],
        rejection_message=row["rejection_message"],
        created_at=row["created_at"],
        decided_at=row["decided_at"],
        media_type=row["media_type"],
    )
