"""The outbox's hot statements never read history: their plans, with much of it in place."""

import asyncio
import json
from collections.abc import Iterator
from uuid import uuid4

from foundation.outbox.policy import OutboxPolicy
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database
from tests.contract.outbox.harness import TABLE

HISTORY = 100_000
FILL = f"""
insert into {TABLE} (outbox_id, ordering_key, destination, payload, status, claim_id, published_at)
select gen_random_uuid(), 'key-' || n / 5, 'stream', '{{}}', 'PUBLISHED', gen_random_uuid(),
    tdp_now() from generate_series(1, $1::integer) as n
"""  # noqa: S608 - constants of this test
OPEN = f"""
insert into {TABLE} (outbox_id, ordering_key, destination, payload)
select gen_random_uuid(), 'key-' || n, 'stream', '{{}}' from generate_series(1, 50) as n
"""  # noqa: S608
DEAD_ENDPOINT = f"""
insert into {TABLE} (outbox_id, ordering_key, destination, payload, status, held, available_at)
select gen_random_uuid(), 'dead-' || key, 'dead', '{{}}',
    case when n = 1 then 'FAILED' else 'PENDING' end, n = 1,
    case when n = 1 then tdp_hour.later else tdp_now() end
from (select tdp_now() + interval '1 hour' as later) as tdp_hour,
    generate_series(1, 1000) as key, generate_series(1, 5) as n
order by key, n
"""  # noqa: S608
WAITING_FOR_A_LOCK = """
select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""
DEFERRED = f"""
select count(*) as n, count(distinct available_at) as times from {TABLE}
where held and status = 'PENDING'
"""  # noqa: S608
SQL = NamedSql.load("foundation.outbox.sql", "postgres.sql", identifiers={"table": TABLE})

ARGUMENTS = {
    "claim": (20, uuid4(), 60.0, 20, False),
    "next_due": (False,),
    "mark": ([uuid4()], [uuid4()], ["PUBLISHED"], [0], [0.0], [False], [None]),
    "release": ("stream",),
    "defer_followers": (1_000, False),
    "depth": (),
    "remove_published": (-60.0, 20),
}


def scans(node: dict[str, object]) -> Iterator[dict[str, object]]:
    yield node
    children = node.get("Plans", [])
    assert isinstance(children, list)
    for child in children:
        yield from scans(child)


async def test_plans_touch_no_history(database: Database) -> None:
    """With all but 50 rows delivered, each statement reads few rows, each through an index."""
    await database.fetch(FILL, HISTORY)
    await database.fetch(OPEN)
    await database.fetch(f"analyze {TABLE}")
    async with database.acquire() as connection:
        # What a prepared statement comes to after its first executions.
        await connection.execute("set plan_cache_mode = force_generic_plan")
        plans = {name: await explained(connection, name) for name in ARGUMENTS}
        await connection.execute("reset plan_cache_mode")
    for name, plan in plans.items():
        nodes = list(scans(plan))
        assert not [node for node in nodes if node["Node Type"] == "Seq Scan"], name
        assert sum(rows_read(node) for node in nodes) < 2_000, name


async def test_rows_behind_failed_ones_do_not_slow_down_claims(
    database: Database,
) -> None:
    """F24: with one endpoint dead and 4,000 rows behind its failures, a claim reads few rows."""
    await database.fetch(DEAD_ENDPOINT)
    store = PostgresOutboxStore(database, OutboxPolicy("test", back_off_s=float), table=TABLE)
    assert (await store.claim(10)).rows == ()
    await database.fetch(OPEN)
    async with database.acquire() as connection:
        nodes = list(scans(await explained(connection, "claim")))
    assert sum(rows_read(node) for node in nodes) < 500
    assert len((await store.claim(100)).rows) == 50


async def test_a_release_frees_the_rows_behind_too(database: Database) -> None:
    """When the endpoint is back, failed rows that were held and those behind them are due."""
    await database.fetch(DEAD_ENDPOINT)
    store = PostgresOutboxStore(database, OutboxPolicy("test", back_off_s=float), table=TABLE)
    await store.claim(10)
    assert await store.next_due_in_s() is not None
    assert await store.release("dead") == 5_000
    claimed = await store.claim(5_000)
    assert len(claimed.rows) == 1_000


async def test_a_release_frees_what_a_relay_defers_at_that_moment(database: Database) -> None:
    """Rows that another relay is just deferring are released with the row they wait for."""
    await database.fetch(DEAD_ENDPOINT)
    store = PostgresOutboxStore(database, OutboxPolicy("test", back_off_s=float), table=TABLE)
    async with asyncio.TaskGroup() as group:
        async with database.transaction() as relay:
            await relay.fetch(SQL["defer_followers"], 5_000, False)  # noqa: FBT003 - a parameter
            releasing = group.create_task(store.release("dead"))
            while not await database.fetch(WAITING_FOR_A_LOCK):
                assert not releasing.done()
        assert await releasing == 5_000
    (row,) = await database.fetch(DEFERRED)
    assert row["n"] == 0


async def test_a_deferred_row_is_due_with_the_one_before_it(database: Database) -> None:
    """A row behind a failed one keeps its place and is not called due before that one is."""
    await database.fetch(DEAD_ENDPOINT)
    store = PostgresOutboxStore(database, OutboxPolicy("test", back_off_s=float), table=TABLE)
    await store.claim(10)
    (row,) = await database.fetch(DEFERRED)
    assert (row["n"], row["times"]) == (4_000, 1)
    due_in_s = await store.next_due_in_s()
    assert due_in_s is not None
    assert 3_000 < due_in_s <= 3_600


async def explained(connection: Connection, name: str) -> dict[str, object]:
    """The plan of a statement that really ran, and was then undone."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        statement = f"explain (analyze, format json) {SQL[name]}"
        (plan,) = json.loads(await connection.fetchval(statement, *ARGUMENTS[name]))
    finally:
        await transaction.rollback()
    found: dict[str, object] = plan["Plan"]
    return found


def rows_read(node: dict[str, object]) -> int:
    if node["Node Type"] == "Bitmap Index Scan":
        # It also counts versions of rows that no vacuum has removed yet; the heap scan does not.
        return 0
    passes = int(str(node["Actual Loops"]).split(".")[0])
    read = float(str(node["Actual Rows"])) + float(str(node.get("Rows Removed by Filter", 0)))
    return round(read * passes)
