"""The statements that run for every event and sweep never read history; and sweeps skip it."""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from uuid import uuid4

from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database
from tests.integration.business_gateway.sync.desk import Desk

HISTORY = 30_000
ROWS_READ_MAX = 1_000
FILL_ORDERS = """
insert into orders (
    order_id, name, processing_mode, source_asset_id, status, task_id, execution_id, run,
    last_contiguous_sequence, last_projected_sequence, status_sequence, platform_status,
    completed_at, quiet_since
)
select gen_random_uuid(), 'Photos', 'ARCHIVE_CLEAN_ONLY', $2, 'COMPLETED', gen_random_uuid(),
    gen_random_uuid(), 1, 3, 3, 3, 'SUCCEEDED', tdp_now(), tdp_now() - interval '1 day'
from generate_series(1, $1::integer)
"""
FILL_INBOX = """
insert into callback_inbox (
    event_id, order_id, task_id, execution_id, run, sequence, type, envelope, source, effect,
    order_version
)
select uuidv7(), order_id, task_id, execution_id, 1, n, 'execution.progress', '{}',
    'CALLBACK', 'PROJECTED', n
from orders, generate_series(1, 2) as n
where status = 'COMPLETED'
"""
OPEN_ORDERS = """
insert into orders (
    order_id, name, processing_mode, source_asset_id, status, task_id, execution_id, run,
    quiet_since
)
select gen_random_uuid(), 'Photos', 'ARCHIVE_CLEAN_ONLY', $1, 'PROCESSING', gen_random_uuid(),
    gen_random_uuid(), 1, tdp_now() - interval '1 hour'
from generate_series(1, 30)
"""
WAITING_ORDERS = """
insert into orders (order_id, name, processing_mode, source_asset_id, quiet_since)
select gen_random_uuid(), 'Photos', 'ARCHIVE_CLEAN_ONLY', $1, tdp_now() - interval '2 hours'
from generate_series(1, 5000)
"""
SQL = NamedSql.load("business_gateway.sql.queries", "callbacks.sql", "commands.sql")


async def test_plans_touch_no_history(gateway_database: Database) -> None:
    """With 30,000 finished orders and 5,000 that wait to be submitted, few rows are read."""
    await filled(gateway_database)
    ids = [str(uuid4()) for _ in range(20)]
    statements: dict[str, tuple[object, ...]] = {
        "find_orders_of_executions": (ids,),
        "lock_projections": (ids,),
        "known_events": (ids, ids),
        "take_stale": (60.0, 100),
        "take_gaps": (ids,),
        "next_stale": (60.0,),
        "close_gap": (ids[0], 1),
        "command_facts": (ids,),
        "close_unsubmitted": (ids[0],),
        "note_refusals": (ids,),
    }
    async with gateway_database.acquire() as connection:
        # What a prepared statement comes to after its first executions.
        await connection.execute("set plan_cache_mode = force_generic_plan")
        plans = {name: await explained(connection, name, *given)
                 for name, given in statements.items()}  # fmt: skip
        await connection.execute("reset plan_cache_mode")
    for name, plan in plans.items():
        nodes = list(scans(plan))
        scanned = {node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"}
        assert not scanned & {"orders", "callback_inbox"}, name
        assert sum(rows_read(node) for node in nodes) < ROWS_READ_MAX, name


async def test_no_statement_reads_all_orders(gateway_database: Database) -> None:
    """The plan of every statement for any arguments finds orders and news through an index."""
    await filled(gateway_database)
    folder = files("business_gateway.sql.queries")
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".sql"))
    texts = [
        one for file in names for one in NamedSql.load("business_gateway.sql.queries", file).items()
    ]
    found = {}
    async with gateway_database.acquire() as connection:
        await connection.execute("set plan_cache_mode = force_generic_plan")
        for name, text in texts:
            await connection.execute(f"prepare planned as {text}")
            count = await connection.fetchval(
                "select cardinality(parameter_types) from pg_prepared_statements"
                " where name = 'planned'"
            )
            given = f"({', '.join(['null'] * count)})" if count else ""
            plan = await connection.fetchval(f"explain (format json) execute planned{given}")
            await connection.execute("deallocate planned")
            nodes = scans(json.loads(plan)[0]["Plan"])
            read = {one["Relation Name"] for one in nodes if one["Node Type"] == "Seq Scan"}
            if read & {"orders", "callback_inbox"}:
                found[name] = read
        await connection.execute("reset plan_cache_mode")
    assert found == {}


async def filled(database: Database) -> None:
    await Desk(database).new_order()
    async with database.transaction() as connection:
        await connection.execute("set local statement_timeout = '90s'")
        # Versions of finished orders are not what is asked about here.
        await connection.execute("alter table orders disable trigger keep_order_change")
        asset_id = await connection.fetchval("select asset_id from assets")
        await connection.execute(FILL_ORDERS, HISTORY, asset_id)
        await connection.execute(FILL_INBOX)
        await connection.execute(OPEN_ORDERS, asset_id)
        await connection.execute(WAITING_ORDERS, asset_id)
        await connection.execute("alter table orders enable trigger keep_order_change")
    await database.fetch("analyze orders, callback_inbox")


async def explained(connection: Connection, name: str, *arguments: object) -> dict[str, Any]:
    transaction = connection.transaction()
    await transaction.start()
    try:
        text = await connection.fetchval(
            f"explain (analyze, format json, timing off) {SQL[name]}", *arguments
        )
    finally:
        await transaction.rollback()
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from scans(child)


def rows_read(node: dict[str, Any]) -> int:
    if "Relation Name" not in node:
        return 0
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])
