"""What the use cases of assets need from outside."""

from collections.abc import Sequence
from typing import Protocol

from business_gateway.core.assets.domain import Asset, AssetId, NewAsset, Verdict


class AssetStore(Protocol):
    """Assets in the gateway's database; a lost database is an UnavailableError."""

    async def add(self, asset: NewAsset) -> Asset:
        """Store a new asset as UPLOADING."""
        ...

    async def get(self, asset_id: AssetId) -> Asset:
        """Read one; AssetNotFoundError."""
        ...

    async def claim_verification(self, asset_id: AssetId, ttl_s: float) -> Asset:
        """Take the right to verify an UPLOADING asset, for so many seconds; return the asset.

        A decided asset is returned without a claim. Raises AssetNotFoundError, and
        AssetBeingVerifiedError while another holds the claim.
        """
        ...

    async def release_verification(self, asset_id: AssetId) -> None:
        """Give the claim back without a verdict."""
        ...

    async def decide(self, asset_id: AssetId, verdict: Verdict) -> Asset:
        """Move an UPLOADING asset to the verdict's state; a decided one stays as it is."""
        ...

    async def remove(self, asset_id: AssetId) -> None:
        """Remove an asset that is still UPLOADING."""
        ...


class LeftUploadStore(Protocol):
    """Uploads that were announced or begun, and never decided."""

    async def left_uploads(self, older_than_s: float, limit: int) -> Sequence[Asset]:
        """Read up to `limit` UPLOADING assets of that age, oldest first."""
        ...

    async def remove(self, asset_id: AssetId) -> None:
        """Remove an asset that is still UPLOADING."""
        ...
