"""Acceptance of tasks on a real PostgreSQL: all or nothing, once per key, in any batch."""

import asyncio
from collections.abc import Sequence

import pytest

from control_plane.adapters.outbound.postgres.intake_store import PostgresIntakeStore
from control_plane.adapters.outbound.postgres.workflow_store import PostgresWorkflowStore
from control_plane.core.executions.ports import IntakeLookup, NewTask
from control_plane.core.idempotency import RequestIdentity
from foundation.clock import SystemClock
from foundation.ids import SystemIds
from foundation.postgres.pool import Database

APPLICATION = "0190aaaa-0000-7000-8000-000000000001"
_COUNTS = """
select
    (select count(*) from tasks) as tasks,
    (select count(*) from executions) as executions,
    (select count(*) from execution_events) as events,
    (select count(*) from outbox_events) as wake_ups,
    (select count(*) from callback_deliveries) as callbacks,
    (select count(*) from idempotency_records) as records
"""


def _identity(key: str, request_hash: bytes = b"hash") -> RequestIdentity:
    return RequestIdentity(f"application:{APPLICATION}", "CreateTask", key, request_hash)


def _task(ids: SystemIds, key: str, *, callback_url: str = "https://a.example/cb") -> NewTask:
    task_id, execution_id = ids.new_id(), ids.new_id()
    return NewTask(
        identity=_identity(key),
        answer=f'{{"task_id":"{task_id}"}}',
        task_id=task_id,
        execution_id=execution_id,
        application_id=APPLICATION,
        name=f"task {key}",
        external_ref=key,
        workflow_name="flow",
        workflow_version="1",
        priority=0,
        input_json='{"n":12345678901234567890}',
        callback_url=callback_url,
        labels_json='{"team":"图像"}',
        traceparent="",
        snapshot_digest="digest",
        snapshot_json='{"steps":[]}',
        timeout_s=60.0,
        event_id=ids.new_id(),
        envelope='{"specversion":"1.0"}',
    )


@pytest.fixture
def ids() -> SystemIds:
    return SystemIds(SystemClock())


@pytest.fixture
def store(control_database: Database, ids: SystemIds) -> PostgresIntakeStore:
    return PostgresIntakeStore(control_database, ids)


async def _counts(database: Database) -> dict[str, int]:
    row = await database.fetchrow(_COUNTS)
    assert row is not None
    return dict(row)


async def test_a_batch_stores_each_task_with_all_its_rows(
    store: PostgresIntakeStore, control_database: Database, ids: SystemIds
) -> None:
    """Each task of a batch gets its execution, event, wake-up, callback and record."""
    created = await store.create([_task(ids, f"k{number}") for number in range(50)])

    assert list(created) == [True] * 50
    assert set((await _counts(control_database)).values()) == {50}


async def test_a_task_without_endpoint_has_no_callback(
    store: PostgresIntakeStore, control_database: Database, ids: SystemIds
) -> None:
    """No delivery is written for a task that has nowhere to deliver to."""
    await store.create([_task(ids, "quiet", callback_url="")])

    counts = await _counts(control_database)
    assert (counts["events"], counts["callbacks"]) == (1, 0)


async def test_repeats_in_a_batch_are_stored_once(
    store: PostgresIntakeStore, control_database: Database, ids: SystemIds
) -> None:
    """Of several tasks with one key in a batch the first is stored, the others leave nothing."""
    created = await store.create([_task(ids, "same"), _task(ids, "other"), _task(ids, "same")])

    assert list(created) == [True, True, False]
    assert set((await _counts(control_database)).values()) == {2}


async def test_concurrent_writers_store_one_task_per_key(
    store: PostgresIntakeStore, control_database: Database, ids: SystemIds
) -> None:
    """Six batches of the same twenty keys, in different orders and at once, store twenty tasks."""
    keys = [f"k{number}" for number in range(20)]

    async def write(shift: int) -> Sequence[bool]:
        order = keys[shift:] + keys[:shift]
        return await store.create([_task(ids, key) for key in order])

    results = await asyncio.gather(*(write(shift) for shift in range(0, 18, 3)))

    assert sum(sum(one) for one in results) == 20
    assert set((await _counts(control_database)).values()) == {20}


async def test_look_up_finds_record_application_and_newest_workflow(
    store: PostgresIntakeStore, control_database: Database, ids: SystemIds
) -> None:
    """A batch of look-ups answers each in its place: replays, versions, and what is missing."""
    workflows = PostgresWorkflowStore(control_database)
    await workflows.publish("flow", "1", "d1", "{}")
    await workflows.publish("flow", "2", "d2", "{}")
    await workflows.deprecate("flow", "2")
    await control_database.fetch(
        "insert into applications (application_id, name) values ($1, 'shop')", APPLICATION
    )
    await store.create([_task(ids, "known")])
    stranger = "0190aaaa-0000-7000-8000-000000000002"

    replay, newest, exact, missing = await store.look_up(
        [
            IntakeLookup(_identity("known"), APPLICATION, "flow", ""),
            IntakeLookup(_identity("new"), APPLICATION, "flow", ""),
            IntakeLookup(_identity("new2"), APPLICATION, "flow", "2"),
            IntakeLookup(_identity("new3"), stranger, "nothing", ""),
        ]
    )

    assert replay.recorded_hash == b"hash"
    assert newest.workflow is not None
    assert newest.workflow.version == "1"
    assert exact.workflow is not None
    assert exact.workflow.deprecated_at is not None
    assert newest.application_known
    assert (missing.application_known, missing.workflow) == (False, None)
