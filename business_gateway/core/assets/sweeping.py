"""Removes uploads that nobody completed, and their bytes."""

from business_gateway.core.assets.domain import object_key, upload_key
from business_gateway.core.assets.ports import LeftUploadStore
from business_gateway.core.objects import ObjectStore


class LeftUploads:
    """Clients announce and go away, and processes die in the middle of an upload."""

    def __init__(
        self, store: LeftUploadStore, objects: ObjectStore, *, older_than_s: float, batch: int
    ) -> None:
        self._store = store
        self._objects = objects
        self._older_than_s = older_than_s
        self._batch = batch

    async def remove(self) -> bool:
        """Remove one batch, bytes before rows; return whether there may be more."""
        left = await self._store.left_uploads(self._older_than_s, self._batch)
        for one in left:
            await self._objects.delete(upload_key(one.asset_id))
            await self._objects.delete(object_key(one.asset_id))
            await self._store.remove(one.asset_id)
        return len(left) == self._batch
