"""Idempotency records of administrative requests, one transaction each."""

from collections.abc import Awaitable, Callable
from typing import Final

from control_plane.core.idempotency import RequestIdentity, reused
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database

_SQL: Final = NamedSql.load("control_plane.sql.queries", "idempotency.sql")


async def run_once(
    database: Database,
    identity: RequestIdentity,
    subject_id: str,
    change: Callable[[Connection], Awaitable[None]],
) -> tuple[str, bool]:
    """Run `change` unless the request was answered before; return (subject id, created).

    The subject is what the request makes or changes: of a replay, the first call's.
    IdempotencyKeyReusedError where the key stands for another request.
    """

    async def attempt(connection: Connection) -> tuple[str, bool]:
        if await remember(connection, identity, subject_id):
            await change(connection)
            return subject_id, True
        return await recall(connection, identity), False

    return await database.run_transaction(attempt)


async def remember(connection: Connection, identity: RequestIdentity, answer: str) -> bool:
    """Store the answer in the caller's transaction; False if the key is known already."""
    return bool(
        await connection.fetchval(
            _SQL.remember_request,
            identity.principal,
            identity.operation,
            identity.key,
            identity.request_hash,
            answer,
        )
    )


async def recall(connection: Connection, identity: RequestIdentity) -> str:
    """Return the stored answer; IdempotencyKeyReusedError if it answered another request."""
    row = await connection.fetchrow(
        _SQL.recall_request, identity.principal, identity.operation, identity.key
    )
    if row is None:  # The record was removed by retention between the two statements.
        raise LookupError(identity.key)
    if row["request_hash"] != identity.request_hash:
        raise reused(identity, row["answer"])
    return str(row["answer"])
