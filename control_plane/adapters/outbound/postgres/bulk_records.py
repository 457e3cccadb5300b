"""How far a bulk act came, kept in the idempotency record of its key."""

from typing import Final

from control_plane.adapters.outbound.postgres.idempotency_store import remember
from control_plane.core.bulk import BulkProgress
from control_plane.core.idempotency import RequestIdentity, reused
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection

_SQL: Final = NamedSql.load("control_plane.sql.queries", "idempotency.sql")


async def take_progress(connection: Connection, identity: RequestIdentity) -> BulkProgress:
    """Return how far the act came, and keep rivals away until the caller's commit.

    IdempotencyKeyReusedError where the key stands for another request.
    """
    beginning = BulkProgress()
    if await remember(connection, identity, beginning.to_json()):
        return beginning
    row = await connection.fetchrow(
        _SQL.lock_request, identity.principal, identity.operation, identity.key
    )
    if row is None:  # The record was removed by retention between the two statements.
        raise LookupError(identity.key)
    if row["request_hash"] != identity.request_hash:
        raise reused(identity, identity.key)
    return BulkProgress.from_json(row["answer"])


async def keep_progress(
    connection: Connection, identity: RequestIdentity, progress: BulkProgress
) -> None:
    """Store how far the act came, in the caller's transaction."""
    await connection.execute(
        _SQL.keep_answer,
        identity.principal,
        identity.operation,
        identity.key,
        progress.to_json(),
    )
