"""Conservation: what really ran balances, and each kind of loss is named by its own equation."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from control_plane.adapters.outbound.postgres.conservation_reader import (
    PostgresConservationReader,
)
from control_plane.core.conservation.application import Conservation
from control_plane.core.conservation.domain import INVARIANTS, Balance
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database
from tdp.control.v1 import system_service_pb2 as system_pb
from tests.integration.control_plane.nodes.world import IDS, World, success
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.errors import refused, task_request

TELL = """
update tasks set callback_url = 'https://example.org/hook';
insert into execution_events (execution_id, sequence, event_id, type, status, progress_percent,
    envelope)
select execution_id, 1, execution_id, 'execution.created', 'CREATED', 0, '{}' from executions;
insert into callback_deliveries (outbox_id, destination, payload, execution_id, sequence,
    application_id)
select execution_id, 'a', '{}', execution_id, 1, application_id from executions;
insert into idempotency_records (principal, operation, key, request_hash, answer)
select 'application:a', 'CreateTask', task_id::text, '', json_build_object('task_id', task_id)::text
from tasks;
"""
SQL = NamedSql.load("control_plane.sql.queries", "conservation.sql")
WINDOW = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
LOSSES = {
    "answered": "delete from tasks where current_execution_id in ("
    "select execution_id from executions order by execution_id limit 1)",
    "accepted": "update tasks set current_execution_id = gen_random_uuid()",
    "moving": "update executions set next_due_at = null; delete from attempts where"
    " status = 'DISPATCHED'; update nodes set running_count = 0",
    "leftovers": "update executions set status = 'CANCELED', completed_at = tdp_now()",
    "events": "update execution_events set sequence = 2",
    "callbacks": "delete from callback_deliveries where execution_id in ("
    "select execution_id from executions order by execution_id limit 1)",
    "commands": "update node_commands set status = 'VOIDED'",
    "results": "update attempt_inbox set lease_version = 7",
    "slots": "update nodes set running_count = 5",
}


async def script(database: Database, statements: str) -> None:
    async with database.acquire() as connection:
        await connection.execute(statements)


async def filled(database: Database) -> World:
    """One attempt that succeeded and one that runs, of two tasks, with all their facts."""
    world = World(database)
    node_id = await world.add_node()
    finished = await world.new_attempt(node_id)
    await world.new_attempt(node_id)
    await script(database, "update node_commands set status = 'SENT', sent_at = tdp_now()")
    await world.inbox.accept([success(finished)])
    await script(database, TELL)
    return world


async def checked(database: Database, kept_for: timedelta | None = None) -> dict[str, Balance]:
    found = await Conservation(PostgresConservationReader(database), kept_for).check(None, None)
    return {one.invariant.key: one for one in found}


def differing(found: dict[str, Balance]) -> set[str]:
    return {key for key, one in found.items() if not one.holds}


def test_each_equation_has_its_statement() -> None:
    """The list and the statements name the same equations, and no key occurs twice."""
    keys = [one.key for one in INVARIANTS]
    assert sorted(f"conservation_{one}" for one in keys) == sorted(SQL)


async def test_a_loss_is_named(control_database: Database) -> None:
    """What balanced before no longer does after a loss, and the ids are told."""
    await filled(control_database)
    assert differing(await checked(control_database)) == set()
    for key, loss in LOSSES.items():
        async with undone(control_database) as connection:
            await connection.execute(loss)
            windowed = next(one.windowed for one in INVARIANTS if one.key == key)
            row = await connection.fetchrow(SQL[f"conservation_{key}"], *WINDOW[: 2 * windowed])
        assert row is not None
        assert row["differing_ids"], key


@asynccontextmanager
async def undone(database: Database) -> AsyncIterator[Connection]:
    async with database.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            yield connection
        finally:
            await transaction.rollback()


async def test_ids_are_bounded(control_database: Database) -> None:
    """Of many that differ, a hundred are named."""
    world = await filled(control_database)
    for _ in range(2):
        await world.add_node(IDS.new_id())
    await script(
        control_database,
        "insert into nodes (node_id, name, credential_sha256, running_count) select"
        " gen_random_uuid(), 'n' || n, sha256(n::text::bytea), 1 from generate_series(1, 150) as n",
    )
    slots = (await checked(control_database))["slots"]
    assert (slots.left_count - slots.right_count, len(slots.differing_ids)) == (150, 100)


async def test_what_retention_removed_is_not_missed(control_database: Database) -> None:
    """A window begins no earlier than the age from which finished work is removed."""
    await filled(control_database)
    await script(
        control_database, "update idempotency_records set created_at = created_at - interval '2h'"
    )
    await script(control_database, LOSSES["answered"])
    assert "answered" in differing(await checked(control_database))
    assert "answered" not in differing(await checked(control_database, kept_for=timedelta(hours=1)))


async def test_over_the_wire(replica: Replica) -> None:
    """An operator is told that all balances; applications and odd windows are refused."""
    await replica.publish()
    _, key = await replica.register("app")
    await replica.tasks.CreateTask(task_request("1"), metadata=key)
    request = system_pb.GetConservationRequest()
    found = await replica.system.GetConservation(request, metadata=replica.admin)
    assert found.balanced
    assert [one.key for one in found.lines] == [one.key for one in INVARIANTS]
    assert {one.key: one.left_count for one in found.lines}["accepted"] == 1
    code, reason, _ = await refused(replica.system.GetConservation(request, metadata=key))
    assert (code, reason) == (grpc.StatusCode.PERMISSION_DENIED, "PRINCIPAL_KIND_REFUSED")
    start, end = Timestamp(), Timestamp()
    start.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    for days in (-1, 32):
        end.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=days))
        odd = system_pb.GetConservationRequest(start_time=start, end_time=end)
        code, reason, _ = await refused(replica.system.GetConservation(odd, metadata=replica.admin))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "WINDOW_INVALID")
