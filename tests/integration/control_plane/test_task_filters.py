"""Filters on PostgreSQL: each finds what it says, through an index and not through history."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from control_plane.adapters.outbound.postgres.execution_reader import PostgresExecutionReader
from control_plane.adapters.outbound.postgres.task_filters import fitting_arguments
from control_plane.core.executions.filters import TaskFilter, parse_filter
from control_plane.limits import PAGE_BYTES_MAX
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database
from tests.integration.control_plane.history import OWNERS, START, fill

HISTORY: Final = 20_000
ROWS_READ_MAX: Final = 1_000
SQL: Final = NamedSql.load("control_plane.sql.queries", "executions_read.sql")
FILTERS: Final = (
    "",
    "status = FAILED",
    "status = FAILED OR status = TIMED_OUT",
    "status != SUCCEEDED",
    "(status = QUEUED OR status = RUNNING) AND workflow = usual",
    "workflow = rare",
    'external_ref = "order-17" OR external_ref = "order-23"',
    'labels.team = "a" AND labels."tier" = 1',
    "labels.team = b",
    'create_time >= "2026-01-01T01:00:00Z" AND create_time < "2026-01-01T01:03:00Z"',
    "create_time > 2026-01-01T01:00:00+00:00 AND create_time <= 2026-01-01T02:03:00+01:00",
    'complete_time >= "2026-01-01T02:00:00.5Z" AND complete_time < "2026-01-01T02:04:00Z"',
    'complete_time < "2026-01-01T00:10:00Z" AND status = SUCCEEDED',
    "status = FAILED AND status != FAILED",
    "quarantined = true",
)


def _fits(n: int, count: int, wanted: TaskFilter) -> bool:
    """Whether task `n` fits, told from the rule by which FILL makes it."""
    live, rest = count - n < 10, n % 1000
    wrong = {3: "FAILED", 5: "TIMED_OUT"}.get(rest, "SUCCEEDED")
    status = ("QUEUED" if n % 2 == 0 else "RUNNING") if live else wrong
    labels = {("team", "a"), ("tier", "1")} if rest == 11 else set()
    created = START + n * timedelta(minutes=1)
    completed = None if live else created + timedelta(seconds=30)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    ended = wanted.completed
    return (
        not wanted.quarantined_only
        and (wanted.statuses is None or status in wanted.statuses)
        and (wanted.workflows is None or ("rare" if rest == 9 else "usual") in wanted.workflows)
        and (wanted.external_refs is None or f"order-{n}" in wanted.external_refs)
        and set(wanted.labels) <= labels
        and (wanted.created.start or first) <= created < (wanted.created.end or last)
        and (
            (ended.start is None and ended.end is None)
            or (completed is not None and (ended.start or first) <= completed < (ended.end or last))
        )
    )


async def test_a_filter_finds_what_it_says(control_database: Database) -> None:
    """Every kind of comparison finds exactly the tasks that fit, newest first, page by page."""
    count = 150
    await fill(control_database, count)
    reader = PostgresExecutionReader(control_database)
    for text in FILTERS:
        wanted = parse_filter(text)
        found: list[str] = []
        before: str | None = None
        while page := await reader.tasks(None, wanted, before, 40):
            found += [one.name for one in page]
            before = page[-1].task_id
        expected = [f"task {n}" for n in reversed(range(count)) if _fits(n, count, wanted)]
        mine = await reader.tasks(OWNERS[1], wanted, None, count)

        assert found == expected, text
        assert [one.name for one in mine] == [one for one in expected if one == "task 7"], text


async def test_a_page_ends_by_its_bytes(control_database: Database) -> None:
    """Documents that fill a page end it early: no more is read than one row past its bytes."""
    await fill(control_database, 60)
    await control_database.fetch("update tasks set input = repeat('x', 256 * 1024)")
    page = await PostgresExecutionReader(control_database).tasks(None, TaskFilter(), None, 60)

    assert sum(len(one.input_json) for one in page[:-1]) <= PAGE_BYTES_MAX
    assert sum(len(one.input_json) for one in page) > PAGE_BYTES_MAX


async def test_no_filter_reads_history(control_database: Database) -> None:
    """With 20,000 tasks in place, a page of each filter reads few rows, whoever asks."""
    await fill(control_database, HISTORY)
    asked = [(text, owner) for text in FILTERS for owner in (None, *OWNERS)]
    too_many = {}
    for text, owner in asked:
        nodes = list(_nodes(await _plan(control_database, owner, text)))
        read = sum(map(_rows_read, nodes))
        if read > ROWS_READ_MAX or any(one["Node Type"] == "Seq Scan" for one in nodes):
            too_many[text, owner] = read

    assert too_many == {}


async def _plan(database: Database, owner: str | None, text: str) -> dict[str, Any]:
    arguments = (*fitting_arguments(owner, parse_filter(text), None), 51, PAGE_BYTES_MAX)
    async with database.transaction() as connection:
        await connection.execute(SQL.plan_for_these_values)
        statement = f"explain (analyze, format json) {SQL.list_tasks}"
        (plan,) = json.loads(await connection.fetchval(statement, *arguments))
    found: dict[str, Any] = plan["Plan"]
    return found


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    children: Sequence[dict[str, Any]] = node.get("Plans", [])
    for child in children:
        yield from _nodes(child)


def _rows_read(node: dict[str, Any]) -> int:
    if "Scan" not in node["Node Type"] or node["Node Type"] in {"CTE Scan", "Subquery Scan"}:
        return 0
    read = float(node["Actual Rows"]) + float(node.get("Rows Removed by Filter", 0))
    return round(read * float(node["Actual Loops"]))
