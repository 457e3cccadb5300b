"""Published workflows on PostgreSQL."""

from collections.abc import Sequence
from typing import Final

from control_plane.core.workflows.ports import PublishedWorkflow
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "workflows.sql")


class PostgresWorkflowStore:
    """Implements WorkflowStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def publish(
        self, name: str, version: str, digest: str, definition_json: str
    ) -> tuple[PublishedWorkflow, bool]:
        """Store a version unless it is there; return what is there and whether it is new."""
        row = await self._database.fetchrow(
            _SQL.publish_workflow, name, version, digest, definition_json
        )
        found = await self.get(name, version)
        assert row is not None
        assert found is not None, "published versions are never removed"
        return found, row["created"]

    async def get(self, name: str, version: str) -> PublishedWorkflow | None:
        """Read one version; an empty one means the newest that is not deprecated."""
        if version:
            row = await self._database.fetchrow(_SQL.get_workflow, name, version)
        else:
            row = await self._database.fetchrow(_SQL.newest_workflow, name)
        return None if row is None else published_workflow(row)

    async def list(
        self, name: str, after: tuple[str, str] | None, limit: int
    ) -> Sequence[PublishedWorkflow]:
        """Read a page by name and version."""
        after_name, after_version = after or ("", "")
        rows = await self._database.fetch(
            _SQL.list_workflows, name, after_name, after_version, limit
        )
        return [published_workflow(row) for row in rows]

    async def deprecate(self, name: str, version: str) -> PublishedWorkflow | None:
        """Deprecate a version, once; None if there is none."""
        row = await self._database.fetchrow(_SQL.deprecate_workflow, name, version)
        return None if row is None else published_workflow(row)

    async def known_capabilities(self) -> frozenset[tuple[str, str]]:
        """Every (capability, version) that some node has declared."""
        rows = await self._database.fetch(_SQL.known_capabilities)
        return frozenset((row["capability"], row["version"]) for row in rows)


def published_workflow(row: Record) -> PublishedWorkflow:
    """Return the workflow that a row with the columns of `workflows` holds."""
    return PublishedWorkflow(
        name=row["name"],
        version=row["version"],
        digest=row["digest"],
        definition_json=row["definition"],
        published_at=row["published_at"],
        deprecated_at=row["deprecated_at"],
    )
