"""With much finished work in place no statement reads history: generic plans of all of them."""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database
from tools.bench import history

HISTORY: Final = 8_000
BIG: Final = frozenset(
    {
        "tasks", "executions", "execution_events", "timeline", "outbox_events",
        "callback_deliveries", "steps", "scheduling_requests", "attempts", "node_commands",
        "attempt_inbox", "grants", "artifacts", "artifact_commits", "idempotency_records",
    }
)  # fmt: skip
# What people filter by is not known before: these are planned anew for the values of each call.
PLANNED_FOR_VALUES: Final = frozenset(
    {
        "list_tasks", "fitting_task_ids", "count_tasks", "list_callbacks", "fitting_callbacks",
        "count_callbacks",
    }
)  # fmt: skip

# Asked by an operator, once after a change of keys.
ASKED_SELDOM: Final = frozenset({"live_grants_without"})


def statements() -> Iterator[tuple[str, str]]:
    """Every named statement of the control plane, and those of each of its outboxes."""
    folder = files("control_plane.sql.queries")
    for name in sorted(one.name for one in folder.iterdir() if one.name.endswith(".sql")):
        yield from NamedSql.load("control_plane.sql.queries", name).items()
    for table in ("outbox_events", "callback_deliveries", "artifact_commits"):
        loaded = NamedSql.load(
            "foundation.outbox.sql", "postgres.sql", identifiers={"table": table}
        )
        for name, text in loaded.items():
            yield f"{name} of {table}", text


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


def faults(plan: dict[str, Any], partial: frozenset[str]) -> Iterator[str]:
    """Reads of a large table that are not bounded by a condition on an index."""
    for node in nodes_of(plan):
        table = node.get("Relation Name", "")
        if node["Node Type"] == "Seq Scan" and table in BIG:
            yield f"reads all of {table}"
        elif _is_walk(node, table) and node["Index Name"] not in partial:
            yield f"walks {node['Index Name']}"


def _is_walk(node: dict[str, Any], table: str) -> bool:
    """Whether an index is read from its beginning, and not where a condition says."""
    kind = node["Node Type"]
    is_scan = kind == "Bitmap Index Scan" or (kind.startswith("Index") and table in BIG)
    return is_scan and "Index Cond" not in node


async def generic_plan(connection: Connection, text: str) -> dict[str, Any]:
    """Plan a statement for any arguments, as a pool's prepared statement comes to be planned."""
    await connection.execute(f"prepare planned as {text}")
    types = await connection.fetchval(
        "select parameter_types from pg_prepared_statements where name = 'planned'"
    )
    given = f"({', '.join(['null'] * len(types))})" if types else ""
    found = await connection.fetch(f"explain (format json) execute planned{given}")
    await connection.execute("deallocate planned")
    plan: dict[str, Any] = json.loads(found[0][0])[0]["Plan"]
    return plan


async def test_no_statement_reads_history(control_database: Database) -> None:
    """Each plan for any arguments finds its rows of the large tables through an index."""
    await history.fill(control_database, HISTORY)
    found: dict[str, list[str]] = {}
    async with control_database.acquire() as connection:
        rows = await connection.fetch(
            "select indexname from pg_indexes where schemaname = 'public' and indexdef ~ ' WHERE '"
        )
        partial = frozenset(row[0] for row in rows)
        await connection.execute("set plan_cache_mode = force_generic_plan")
        for name, text in statements():
            wrong = list(faults(await generic_plan(connection, text), partial))
            if wrong and name not in PLANNED_FOR_VALUES | ASKED_SELDOM:
                found[name] = wrong
        await connection.execute("reset plan_cache_mode")
    assert found == {}
