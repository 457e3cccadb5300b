"""Grants and artifacts of live attempts on PostgreSQL."""

import json
from collections.abc import Sequence
from typing import Final

from control_plane.adapters.outbound.postgres.snapshots import WorkflowSnapshots
from control_plane.core.applications.application import provider_secret_place
from control_plane.core.grants.committing import ReportedArtifact
from control_plane.core.grants.domain import (
    Access,
    Allocation,
    Grant,
    GrantHolder,
    GrantMethod,
    GrantNotFoundError,
    GrantRequest,
    LeaseLostError,
    LiveAttempt,
    grant_secret_place,
)
from control_plane.core.workflows.domain import WorkflowDefinition
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record
from foundation.secrets import KeyRing

_SQL: Final = NamedSql.load("control_plane.sql.queries", "grants.sql")


class PostgresGrantStore:
    """Implements GrantStore and CommitStore."""

    def __init__(self, database: Database, keys: KeyRing, snapshots: WorkflowSnapshots) -> None:
        self._database = database
        self._keys = keys
        self._snapshots = snapshots

    async def live_attempt(self, holder: GrantHolder) -> LiveAttempt:
        """Read the attempt; LeaseLostError unless it is live on this node under this lease."""
        row = await self._database.fetchrow(
            _SQL.live_attempt, holder.attempt_id, holder.node_id, holder.lease_version
        )
        if row is None:
            raise _lease_lost(holder)
        sealed = row["resource_provider_secret"]
        secret = None
        if sealed is not None:
            secret = self._keys.open(sealed, provider_secret_place(row["application_id"]))
        return LiveAttempt(
            holder=holder,
            application_id=row["application_id"],
            task_id=row["task_id"],
            external_ref=row["external_ref"],
            execution_id=row["execution_id"],
            step_key=row["step_key"],
            item_index=row["item_index"],
            input_json=row["input"] or "",
            snapshot_digest=row["snapshot_digest"],
            run_deadline_at=row["run_deadline_at"],
            now=row["now"],
            provider_url=row["resource_provider_url"],
            provider_secret=secret,
        )

    async def committed_by(self, execution_id: str, resource_ref: str) -> str | None:
        """Return the key of the step whose committed artifact the reference is, or None."""
        row = await self._database.fetchrow(_SQL.committed_by, execution_id, resource_ref)
        return None if row is None else str(row["step_key"])

    async def definition(self, snapshot_digest: str) -> WorkflowDefinition:
        """Return the frozen definition that an execution runs."""
        async with self._database.acquire() as connection:
            found = (await self._snapshots.get(connection, [snapshot_digest]))[snapshot_digest]
        if isinstance(found, Exception):
            raise found
        return found.definition

    async def allocated_to(self, attempt_id: str, resource_ref: str) -> bool:
        """Whether the reference was allocated to this attempt."""
        row = await self._database.fetchrow(_SQL.allocated_to, attempt_id, resource_ref)
        return row is not None

    async def grant_of_key(self, attempt: LiveAttempt, key: str) -> Grant | None:
        """Return the grant that was given for this key and still lasts, or None."""
        row = await self._database.fetchrow(_SQL.grant_of_key, attempt.holder.attempt_id, key)
        return None if row is None else self._grant(attempt, row)

    async def grant(self, attempt: LiveAttempt, grant_id: str) -> Grant:
        """Return one of the attempt's grants; GrantNotFoundError."""
        row = await self._database.fetchrow(_SQL.grant_of_id, grant_id, attempt.holder.attempt_id)
        if row is None:
            raise GrantNotFoundError(
                f"attempt {attempt.holder.attempt_id} has no grant {grant_id}: authorize anew"
            )
        return self._grant(attempt, row)

    async def save(self, attempt: LiveAttempt, grants: Sequence[Grant]) -> None:
        """Store grants, sealed; LeaseLostError if the lease has moved meanwhile."""
        async with self._database.transaction() as connection:
            await _hold_lease(connection, attempt.holder)
            await self._insert(connection, attempt, grants)

    async def save_allocations(
        self, attempt: LiveAttempt, boot_id: str, collection_ref: str, made: Sequence[Allocation]
    ) -> None:
        """Store places and their grants; LeaseLostError if the lease has moved meanwhile."""
        async with self._database.transaction() as connection:
            await _hold_lease(connection, attempt.holder)
            await connection.execute(
                _SQL.insert_artifacts,
                attempt.holder.attempt_id,
                boot_id,
                attempt.execution_id,
                attempt.step_key,
                attempt.item_index,
                collection_ref,
                [one.place.relative_path for one in made],
                [one.resource_ref for one in made],
                [one.place.type for one in made],
                [one.place.media_type for one in made],
                [one.place.size_bytes_max for one in made],
            )
            await self._insert(connection, attempt, [one.grant for one in made])

    async def external_ref(self, task_id: str) -> str:
        """Return the application's own reference of a task."""
        row = await self._database.fetchrow(_SQL.task_reference, task_id)
        return "" if row is None else str(row["external_ref"])

    async def reported(self, attempt_id: str) -> Sequence[ReportedArtifact]:
        """Read the attempt's reported artifacts, by path."""
        rows = await self._database.fetch(_SQL.reported_artifacts, attempt_id)
        return [
            ReportedArtifact(
                relative_path=row["relative_path"],
                resource_ref=row["resource_ref"],
                size_bytes=row["size_bytes"] or 0,
                sha256=row["sha256"] or b"",
                media_type=row["media_type"],
            )
            for row in rows
        ]

    async def _insert(
        self, connection: Connection, attempt: LiveAttempt, grants: Sequence[Grant]
    ) -> None:
        await connection.execute(
            _SQL.insert_grants,
            attempt.holder.attempt_id,
            attempt.holder.lease_version,
            [one.grant_id for one in grants],
            [one.request.key for one in grants],
            [one.request.resource_ref for one in grants],
            [one.request.method.value for one in grants],
            [one.request.scope_type for one in grants],
            [one.request.scope_ref for one in grants],
            [self._sealed(attempt, one) for one in grants],
            [one.access.size_bytes for one in grants],
            [one.access.sha256 for one in grants],
            [one.access.expires_at for one in grants],
        )

    def _sealed(self, attempt: LiveAttempt, grant: Grant) -> bytes:
        secret = {"url": grant.access.url, "headers": dict(grant.access.headers)}
        place = grant_secret_place(attempt.application_id, grant.grant_id)
        return self._keys.seal(json.dumps(secret).encode(), place)

    def _grant(self, attempt: LiveAttempt, row: Record) -> Grant:
        place = grant_secret_place(attempt.application_id, row["grant_id"])
        secret = json.loads(self._keys.open(row["secret"], place))
        method = GrantMethod(row["method"])
        return Grant(
            row["grant_id"],
            GrantRequest(
                row["idempotency_key"],
                row["resource_ref"],
                method,
                row["scope_type"],
                row["scope_ref"],
            ),
            Access(
                url=secret["url"],
                method=method,
                headers=secret["headers"],
                expires_at=row["expires_at"],
                size_bytes=row["size_bytes"],
                sha256=row["sha256"] or b"",
            ),
        )


async def _hold_lease(connection: Connection, holder: GrantHolder) -> None:
    held = await connection.fetchval(
        _SQL.hold_lease, holder.attempt_id, holder.node_id, holder.lease_version
    )
    if not held:
        raise _lease_lost(holder)


def _lease_lost(holder: GrantHolder) -> LeaseLostError:
    return LeaseLostError(
        f"attempt {holder.attempt_id} is not live on node {holder.node_id} under lease "
        f"{holder.lease_version}: stop it, its work goes on elsewhere",
        metadata={"attempt_id": holder.attempt_id},
    )
