"""Removes places that nobody committed, and their bytes."""

from business_gateway.core.objects import ObjectStore
from business_gateway.core.resources.ports import ArtifactSweepStore


class LeftPlaces:
    """Zombies and failed attempts leave uploads that belong to nothing: they go after a while."""

    def __init__(
        self, store: ArtifactSweepStore, objects: ObjectStore, *, older_than_s: float, batch: int
    ) -> None:
        self._store = store
        self._objects = objects
        self._older_than_s = older_than_s
        self._batch = batch

    async def remove(self) -> bool:
        """Remove one batch, bytes before rows; return whether there may be more."""
        left = await self._store.left_places(self._older_than_s, self._batch)
        for one in left:
            await self._objects.delete(one.object_key)
        if left:
            await self._store.forget([one.artifact_id for one in left])
        return len(left) == self._batch
