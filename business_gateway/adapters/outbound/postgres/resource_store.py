"""Artifacts, and the sources of orders, on PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Final

import asyncpg

from business_gateway.core.resources.domain import (
    Artifact,
    ArtifactCommitConflictError,
    ArtifactId,
    ArtifactState,
    CommitPart,
    NewArtifact,
    Work,
)
from business_gateway.core.resources.ports import ReadableObject
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("business_gateway.sql.queries", "resources.sql")


class PostgresResourceStore:
    """Implements ResourceStore and ArtifactSweepStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def order_exists(self, order_id: str) -> bool:
        """See ResourceStore."""
        return await self._database.fetchrow(_SQL.order_exists, order_id) is not None

    async def source_of(self, order_id: str, asset_id: str) -> ReadableObject | None:
        """See ResourceStore."""
        row = await self._database.fetchrow(_SQL.source_of, order_id, asset_id)
        if row is None:
            return None
        return ReadableObject(row["is_source"], row["object_key"], row["size_bytes"], row["sha256"])

    async def artifact(self, artifact_id: ArtifactId) -> Artifact | None:
        """See ResourceStore."""
        return (await self.artifacts([artifact_id])).get(artifact_id)

    async def artifacts(self, artifact_ids: Sequence[ArtifactId]) -> Mapping[ArtifactId, Artifact]:
        """See ResourceStore."""
        rows = await self._database.fetch(_SQL.artifacts_by_id, list(artifact_ids))
        found = [_artifact(row) for row in rows]
        return {one.artifact_id: one for one in found}

    async def allocate(
        self, work: Work, boot_id: str, artifacts: Sequence[NewArtifact]
    ) -> Sequence[Artifact]:
        """See ResourceStore."""
        await self._database.fetch(
            _SQL.insert_places,
            work.order_id,
            work.task_id,
            work.execution_id,
            work.step_key,
            work.item_index,
            work.attempt_id,
            boot_id,
            [one.artifact_id for one in artifacts],
            [one.place.relative_path for one in artifacts],
            [one.place.type for one in artifacts],
            [one.place.media_type for one in artifacts],
            [one.place.size_bytes_max for one in artifacts],
            [one.object_key for one in artifacts],
        )
        paths = [one.place.relative_path for one in artifacts]
        # A statement of its own, so that it sees places that another call just committed.
        rows = await self._database.fetch(_SQL.places_of, work.attempt_id, boot_id, paths)
        by_path = {row["relative_path"]: _artifact(row) for row in rows}
        return [by_path[path] for path in paths]

    async def committed_count(self, work: Work, part: CommitPart) -> int | None:
        """See ResourceStore."""
        row = await self._database.fetchrow(_SQL.find_commit, work.attempt_id, part.part)
        return None if row is None else _answered(row, work, part)

    async def commit(self, work: Work, part: CommitPart) -> int:
        """See ResourceStore."""
        try:
            return await self._database.run_transaction(lambda one: _commit(one, work, part))
        except asyncpg.UniqueViolationError as error:
            raise ArtifactCommitConflictError(
                f"another attempt of step {work.step_key} has committed one of these paths: this "
                "one's files stay uncommitted"
            ) from error

    async def page(
        self, order_id: str, after_path: tuple[str, str] | None, limit: int
    ) -> Sequence[Artifact]:
        """See ResourceStore."""
        path, artifact_id = after_path or (None, None)
        rows = await self._database.fetch(_SQL.page_artifacts, order_id, path, artifact_id, limit)
        return [_artifact(row) for row in rows]

    async def left_places(self, older_than_s: float, limit: int) -> Sequence[Artifact]:
        """See ArtifactSweepStore."""
        rows = await self._database.fetch(_SQL.left_places, older_than_s, limit)
        return [_artifact(row) for row in rows]

    async def forget(self, artifact_ids: Sequence[ArtifactId]) -> None:
        """See ArtifactSweepStore."""
        await self._database.fetch(_SQL.forget_places, list(artifact_ids))


async def _commit(connection: Connection, work: Work, part: CommitPart) -> int:
    await connection.execute(_SQL.lock_attempt, work.attempt_id)
    row = await connection.fetchrow(_SQL.find_commit, work.attempt_id, part.part)
    if row is not None:
        return _answered(row, work, part)
    await connection.execute(
        _SQL.insert_commit,
        work.attempt_id,
        part.part,
        part.part_count,
        part.request_sha256,
        len(part.files),
    )
    await connection.execute(
        _SQL.verify_artifacts,
        work.attempt_id,
        [one.artifact_id for one in part.files],
        [one.size_bytes for one in part.files],
        [one.sha256 for one in part.files],
    )
    progress = await connection.fetchrow(_SQL.commit_progress, work.attempt_id)
    assert progress is not None
    if progress["least"] != progress["most"]:
        raise _conflict(work, f"parts disagree: {progress['least']} or {progress['most']} in all")
    if progress["part_count"] == part.part_count:
        await connection.execute(_SQL.commit_artifacts, work.attempt_id)
    return len(part.files)


def _answered(row: Record, work: Work, part: CommitPart) -> int:
    if row["request_sha256"] != part.request_sha256:
        raise _conflict(work, f"part {part.part} was committed with other files")
    return int(row["file_count"])


def _conflict(work: Work, why: str) -> ArtifactCommitConflictError:
    return ArtifactCommitConflictError(f"attempt {work.attempt_id}: {why}; nothing was changed")


def _artifact(row: Record) -> Artifact:
    return Artifact(
        artifact_id=ArtifactId(str(row["artifact_id"])),
        order_id=str(row["order_id"]),
        execution_id=str(row["execution_id"]),
        step_key=row["step_key"],
        attempt_id=str(row["attempt_id"]),
        relative_path=row["relative_path"],
        type=row["type"],
        media_type=row["media_type"],
        size_bytes_max=row["size_bytes_max"],
        object_key=row["object_key"],
        state=ArtifactState(row["state"]),
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
        committed_at=row["committed_at"],
    )
