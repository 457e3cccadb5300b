"""The one writer of the journal: whatever queued while the last transaction ran is the next."""

import asyncio
import contextlib
from collections.abc import Sequence
from itertools import chain

import structlog

from foundation.batching import Batcher
from foundation.sqlite.errors import LocalDatabaseError, LocalDiskFullError
from node_agent.core.journal.domain import Probe, Write
from node_agent.core.journal.ports import JournalStore

_log = structlog.stdlib.get_logger(__name__)


class JournalWriter:
    """A Service that stores writes in batches; a failure of the file, but a full disk, ends it."""

    name = "journal-writer"

    def __init__(self, store: JournalStore, *, retry_full_disk_s: float = 1.0) -> None:
        """Prepare; a write that must not be lost is retried every `retry_full_disk_s`."""
        self._store = store
        self._retry_full_disk_s = retry_full_disk_s
        self._batcher: Batcher[Sequence[Write], None] = Batcher("journal", self._apply)
        self._failed: asyncio.Future[None] | None = None
        self._disk_is_full = False

    @property
    def disk_is_full(self) -> bool:
        """Whether the last transaction found no room."""
        return self._disk_is_full

    async def submit(self, writes: Sequence[Write]) -> None:
        """Store the writes together; they are on disk when it returns.

        Raises LocalDiskFullError (nothing was stored), or what ends this service.
        """
        await self._batcher.submit(writes)

    async def submit_in_any_case(self, writes: Sequence[Write]) -> None:
        """Store the writes however long the disk stays full: they must not be lost."""
        while True:
            try:
                await self._batcher.submit(writes)
            except LocalDiskFullError:
                await asyncio.sleep(self._retry_full_disk_s)
            else:
                return

    async def probe(self) -> None:
        """Return once something was written; a full disk is told elsewhere, and survived.

        Raises what ends this service.
        """
        with contextlib.suppress(LocalDiskFullError):
            await self._batcher.submit([Probe()])

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def run(self) -> None:
        """Store what is submitted until `stop`; raises the file's failure."""
        self._failed = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(self._batcher.run(), name="journal-batches")
        try:
            await asyncio.wait({serving, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                self._failed.result()
            await serving
        finally:
            serving.cancel()
            self._failed.cancel()

    async def stop(self) -> None:
        """Store what is queued and end."""
        await self._batcher.stop()

    async def _apply(self, items: Sequence[Sequence[Write]]) -> Sequence[None]:
        try:
            await self._store.apply(tuple(chain.from_iterable(items)))
        except LocalDiskFullError as error:
            if not self._disk_is_full:
                _log.error("journal_disk_full", error=error.message)
            self._disk_is_full = True
            raise
        except LocalDatabaseError as error:
            self._fail(error)
            raise
        if self._disk_is_full:
            _log.info("journal_disk_has_room_again")
        self._disk_is_full = False
        return [None] * len(items)

    def _fail(self, error: LocalDatabaseError) -> None:
        _log.error("journal_failed", error=error.message)
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
