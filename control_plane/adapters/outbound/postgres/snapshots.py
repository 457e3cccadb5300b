"""Frozen workflow definitions, read once and kept compiled by their digest."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from control_plane.core.workflows.compiling import CompiledWorkflow, CompiledWorkflows
from foundation.errors import InternalError
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection

_SQL: Final = NamedSql.load("control_plane.sql.queries", "engine.sql")
_KEPT_MAX: Final = 256


class SnapshotUnreadableError(InternalError):
    """A frozen definition is not stored, or this version cannot compile it."""

    reason = "SNAPSHOT_UNREADABLE"


class WorkflowSnapshots:
    """Compiled snapshots by digest; the least recently used is dropped when full."""

    def __init__(self, compiled: CompiledWorkflows) -> None:
        """Share the compiled workflows of the replica."""
        self._compiled = compiled
        self._known: OrderedDict[str, CompiledWorkflow] = OrderedDict()

    async def get(
        self, connection: Connection, digests: Iterable[str]
    ) -> dict[str, CompiledWorkflow | SnapshotUnreadableError]:
        """Return each snapshot, or the error that stands in its way, by digest."""
        wanted = set(digests)
        found: dict[str, CompiledWorkflow | SnapshotUnreadableError] = {}
        for digest in wanted & self._known.keys():
            self._known.move_to_end(digest)
            found[digest] = self._known[digest]
        missing = sorted(wanted - found.keys())
        if missing:
            rows = await connection.fetch(_SQL.read_snapshots, missing)
            texts = {row["digest"]: row["definition"] for row in rows}
            found |= {digest: self._read(digest, texts.get(digest)) for digest in missing}
        return found

    def _read(self, digest: str, text: str | None) -> CompiledWorkflow | SnapshotUnreadableError:
        if text is None:
            return SnapshotUnreadableError(f"workflow snapshot {digest} is not stored")
        try:
            workflow = self._compiled.get(text, digest)
        except Exception as error:  # noqa: BLE001 - belongs to the executions that use it
            return SnapshotUnreadableError(f"workflow snapshot {digest} is unreadable: {error}")
        self._known[digest] = workflow
        while len(self._known) > _KEPT_MAX:
            self._known.popitem(last=False)
        return workflow
