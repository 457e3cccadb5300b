"""Bulk acts on PostgreSQL: in parts, resumed, by several callers at once, and like single acts."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.adapters.outbound.postgres import bulk_store
from control_plane.adapters.outbound.postgres.bulk_store import PostgresBulkStore
from control_plane.adapters.outbound.postgres.control_store import PostgresTaskControlStore
from control_plane.adapters.outbound.postgres.snapshots import WorkflowSnapshots
from control_plane.adapters.outbound.postgres.task_acts import TaskActs
from control_plane.core import bulk
from control_plane.core.bulk import BulkAnswer, BulkPart
from control_plane.core.engine.reuse import RerunMode
from control_plane.core.executions.bulk import BulkAct, BulkRequest, BulkTasks
from control_plane.core.executions.control import TaskAct
from control_plane.core.executions.filters import TaskFilter
from control_plane.core.idempotency import IdempotencyKeyReusedError, RequestIdentity
from control_plane.core.wakeups import LocalHints
from control_plane.core.workflows.compiling import CompiledWorkflows
from foundation.clock import SystemClock
from foundation.ids import SystemIds
from foundation.postgres.pool import Database
from foundation.principals import Principal, PrincipalKind, Scope
from tests.integration.control_plane.history import OWNERS, fill

OPERATOR: Final = Principal(PrincipalKind.OPERATOR, "ann", frozenset({Scope.ADMIN}))
# What one cancel writes, without what differs from one to the next: ids and times.
WRITTEN: Final = """
select
    execution.status, execution.version, execution.last_sequence,
    execution.next_due_at is not null as due, event.sequence, event.type, event.progress_percent,
    entry.type as fact, entry.actor, entry.detail,
    (select count(*) from outbox_events as told where told.execution_id = event.execution_id),
    (select count(*) from callback_deliveries as sent where sent.execution_id = event.execution_id)
from tasks as task
inner join executions as execution on execution.execution_id = task.current_execution_id
left join execution_events as event on event.execution_id = execution.execution_id
left join timeline as entry on entry.execution_id = execution.execution_id
where execution.status = 'CANCELING' and task.task_id = any($1::uuid[])
order by task.task_id
"""


def _stores(database: Database) -> tuple[PostgresBulkStore, PostgresTaskControlStore]:
    clock = SystemClock()
    ids = SystemIds(clock)
    acts = TaskActs(WorkflowSnapshots(CompiledWorkflows(CelCompiler())), ids, clock)
    return PostgresBulkStore(database, acts, ids), PostgresTaskControlStore(database, acts, ids)


def _tasks(database: Database) -> BulkTasks:
    return BulkTasks(_stores(database)[0], LocalHints())


def _request(**changes: Any) -> BulkRequest:
    asked = BulkRequest(
        "k", "", 'workflow = "usual" OR workflow = "rare"', dry_run=False, reason=""
    )
    return replace(asked, **changes)


async def _canceling(database: Database) -> int:
    row = await database.fetchrow(
        "select count(*) as n, count(distinct execution_id) as once from execution_events "
        "where type = 'execution.canceling'"
    )
    assert row is not None
    assert row["n"] == row["once"], "no execution is asked twice"
    return int(row["n"])


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_store, "CANCELS_PER_PART", 3)
    monkeypatch.setattr(bulk_store, "RERUNS_PER_PART", 4)


async def test_a_cancel_reaches_all_that_live_and_is_told_again(control_database: Database) -> None:
    """Only live runs are matched and changed; the repetition answers the same counts."""
    await fill(control_database, 40)
    tasks = _tasks(control_database)
    counted = await tasks.cancel(OPERATOR, _request(dry_run=True))
    untouched = await _canceling(control_database)
    first = await tasks.cancel(OPERATOR, _request())
    again = await tasks.cancel(OPERATOR, _request())

    assert counted == BulkAnswer(9, 0, 0, has_more=False, created=True)
    assert untouched == 0
    assert first == BulkAnswer(9, 9, 0, has_more=False, created=True)
    assert again == replace(first, created=False)
    assert await _canceling(control_database) == 9


async def test_an_act_goes_on_where_it_was_cut_off(control_database: Database) -> None:
    """What a caller who was cut off had done is in the counts of the call that ends it."""
    await fill(control_database, 40)
    store, _ = _stores(control_database)

    @dataclass
    class Dying:
        """A store whose process dies before the third part."""

        parts: int = 0

        async def count(self, owner: str | None, wanted: TaskFilter, count_max: int) -> int:
            return await store.count(owner, wanted, count_max)

        async def advance(self, act: BulkAct) -> BulkPart:
            self.parts += 1
            if self.parts > 2:
                raise ConnectionError
            return await store.advance(act)

    with pytest.raises(ConnectionError):
        await BulkTasks(Dying(), LocalHints()).cancel(OPERATOR, _request())
    halfway = await _canceling(control_database)
    ended = await _tasks(control_database).cancel(OPERATOR, _request())

    assert halfway == 6
    assert ended == BulkAnswer(9, 9, 0, has_more=False, created=True)
    assert await _canceling(control_database) == 9


async def test_callers_at_once_share_one_act(control_database: Database) -> None:
    """The same key from three callers at once cancels each task once, and all hear the same."""
    await fill(control_database, 40)
    answers = await asyncio.gather(
        *(_tasks(control_database).cancel(OPERATOR, _request()) for _ in range(3))
    )

    assert {(one.matched, one.changed) for one in answers} == {(9, 9)}
    assert await _canceling(control_database) == 9


async def test_an_act_ends_at_its_bound_and_says_so(
    control_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the bound another key goes on, since what was changed fits no more."""
    monkeypatch.setattr(bulk, "BULK_COUNT_MAX", 7)
    await fill(control_database, 40)
    tasks = _tasks(control_database)
    first = await tasks.cancel(OPERATOR, _request())
    rest = await tasks.cancel(OPERATOR, _request(idempotency_key="k2"))

    assert first == BulkAnswer(7, 7, 0, has_more=True, created=True)
    assert rest == BulkAnswer(2, 2, 0, has_more=False, created=True)


async def test_a_bulk_cancel_writes_what_single_cancels_write(control_database: Database) -> None:
    """Four tasks cancelled together and four one by one leave the same rows."""
    await fill(control_database, 11)
    await control_database.fetch("update tasks set callback_url = 'https://shop.example/cb'")
    rows = await control_database.fetch("select task_id::text as id from tasks order by task_id")
    ids = [row["id"] for row in rows]
    bulk_acts, single = _stores(control_database)
    for number, task_id in enumerate(ids[3:7]):
        identity = RequestIdentity("operator:ann", "CancelTask", str(number), b"h" * 32)
        await single.cancel(TaskAct(identity, task_id, None, 0, "operator:ann", "why"))
    await BulkTasks(bulk_acts, LocalHints()).cancel(OPERATOR, _request(reason="why"))
    one_by_one, together = [
        [tuple(row.values()) for row in await control_database.fetch(WRITTEN, part)]
        for part in (ids[3:7], ids[7:])
    ]

    assert len(one_by_one) == 4
    assert together == one_by_one


async def test_a_rerun_starts_what_ended_and_counts_what_refuses(
    control_database: Database,
) -> None:
    """From scratch all that ended runs again; a mode that finds nothing in a task passes it by."""
    await fill(control_database, 20)
    tasks = _tasks(control_database)
    nothing = _request(filter="workflow = other", dry_run=True)
    failed = await tasks.rerun(OPERATOR, nothing, RerunMode.REUSE_SUCCEEDED)
    await control_database.fetch(
        "insert into workflow_snapshots (digest, definition) values ('d', $1)", _DEFINITION
    )
    refused = await tasks.rerun(OPERATOR, _request(), RerunMode.FAILED_ITEMS)
    again = await tasks.rerun(OPERATOR, _request(idempotency_key="k2"), RerunMode.FROM_SCRATCH)
    runs = await control_database.fetch(
        "select current_run, count(*) as n from tasks group by 1 order by 1"
    )

    assert failed.matched == 0
    assert refused == BulkAnswer(2, 0, 2, has_more=False, created=True)
    assert again == BulkAnswer(11, 11, 0, has_more=False, created=True)
    assert [tuple(row.values()) for row in runs] == [(1, 9), (2, 11)]


async def test_a_key_stands_for_one_request_and_an_owner_for_his_tasks(
    control_database: Database,
) -> None:
    """Another filter under the key is refused; an application reaches none but its own tasks."""
    await fill(control_database, 40)
    await control_database.fetch(
        "update tasks set application_id = $1 where external_ref = 'order-39'", OWNERS[1]
    )
    await control_database.fetch(
        "update executions set application_id = $1 where task_id = "
        "(select task_id from tasks where external_ref = 'order-39')",
        OWNERS[1],
    )
    tasks = _tasks(control_database)
    mine = Principal(PrincipalKind.APPLICATION, OWNERS[1], frozenset({Scope.SUBMIT, Scope.READ}))
    own = await tasks.cancel(mine, _request(application_id=OWNERS[0]))
    with pytest.raises(IdempotencyKeyReusedError):
        await tasks.cancel(mine, _request(filter="workflow = other", application_id=OWNERS[0]))
    named = await tasks.cancel(OPERATOR, _request(application_id=OWNERS[0], dry_run=True))

    assert (own.matched, own.changed) == (1, 1)
    assert named.matched == 8


_DEFINITION: Final = (
    '{"name":"usual","version":"1","steps":[{"key":"a","kind":"capability","capability":"noop",'
    '"capability_version":"1"}]}'
)
