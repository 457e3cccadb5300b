"""The engine's driver on a real PostgreSQL: batches, repeats, rivals, failures, due times."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from control_plane.adapters.outbound.postgres.engine_store import FailurePolicy
from foundation.errors import UnavailableError
from foundation.failpoints import install_failpoints, uninstall_failpoints
from foundation.postgres.pool import Database
from tests.integration.control_plane.engine.plant import (
    IDS,
    TWO_STEPS,
    Plant,
    step,
    workflow,
)

_WHOLE_STATE = """
select
    (select jsonb_agg(to_jsonb(e) order by execution_id) from executions as e) as executions,
    (select jsonb_agg(to_jsonb(s) order by execution_id, step_key, item_index) from steps as s)
        as steps,
    (select jsonb_agg(to_jsonb(r) order by execution_id, step_key, item_index, attempt_number)
        from scheduling_requests as r) as requests,
    (select jsonb_agg(to_jsonb(v) order by execution_id, sequence) from execution_events as v)
        as events
"""


@pytest.fixture
def plant(control_database: Database) -> Plant:
    return Plant(control_database)


@pytest.fixture
def armed() -> Iterator[None]:
    """Disarms whatever failpoints the test armed."""
    yield
    uninstall_failpoints()


async def _whole_state(plant: Plant) -> dict[str, str]:
    row = await plant.database.fetchrow(_WHOLE_STATE)
    assert row is not None
    return dict(row)


async def test_a_new_execution_asks_for_its_first_step(plant: Plant) -> None:
    """Creates all steps, queues the execution, and requests a node for what waits for nothing."""
    (one,) = await plant.create()

    await plant.advance([one])

    assert await plant.statuses(one) == {"first": "READY", "second": "PENDING"}
    assert await plant.requests(one) == [("first", 1, "PENDING")]
    row = await plant.execution(one)
    assert (row["status"], row["version"], row["last_sequence"]) == ("QUEUED", 2, 1)
    assert plant.hints.scheduler.pending


async def test_an_execution_runs_to_its_output(plant: Plant) -> None:
    """Two steps in order, the second reading the first; one event for each thing worth telling."""
    (one,) = await plant.create(callback_url="https://a.example/cb")
    for _ in range(2):
        await plant.advance([one])
        await plant.succeed(await plant.dispatch(one), {"n": 12345678901234567890})
    await plant.advance([one])

    row = await plant.execution(one)
    assert (row["status"], row["progress_percent"]) == ("SUCCEEDED", 100)
    assert row["output"] == '{"last":{"n":12345678901234567890}}'
    assert row["completed_at"] is not None
    assert row["next_due_at"] is None
    events = await plant.events(one)
    assert [sequence for sequence, _, _ in events] == list(range(1, len(events) + 1))
    assert events[-1][1:] == ("execution.succeeded", "SUCCEEDED")
    told = await plant.database.fetch(
        "select payload from callback_deliveries where execution_id = $1 order by sequence",
        one.execution_id,
    )
    last = json.loads(told[-1]["payload"])
    assert last["type"] == "execution.succeeded"
    assert last["data"]["output"] == {"last": {"n": 12345678901234567890}}


async def test_a_failed_step_ends_the_execution_once_all_has_stopped(plant: Plant) -> None:
    """Two parallel steps: one fails, the other is told to stop, then the execution is FAILED."""
    definition = workflow(step("good"), step("bad", retry={"max_attempts": 1}))
    (one,) = await plant.create(definition)
    await plant.advance([one])
    attempts = await plant.dispatch(one)
    rows = await plant.database.fetch("select attempt_id::text, step_key from attempts")
    by_key = {row["step_key"]: row["attempt_id"] for row in rows}
    assert sorted(by_key.values()) == sorted(attempts)

    await plant.fail([by_key["bad"]])
    await plant.advance_all()

    row = await plant.execution(one)
    assert (row["status"], row["closing_as"]) == ("RUNNING", "FAILED")
    stopped = await plant.database.fetchrow(
        "select stop_reason from attempts where attempt_id = $1", by_key["good"]
    )
    assert stopped is not None
    assert stopped["stop_reason"] == "CANCEL"

    await plant.succeed([by_key["good"]])
    await plant.advance_all()

    row = await plant.execution(one)
    assert row["status"] == "FAILED"
    assert json.loads(row["failure"])["reason"] == "STEP_FAILED"
    assert (await plant.events(one))[-1][1] == "execution.failed"


async def test_queued_work_of_a_cancelled_execution_is_dropped(plant: Plant) -> None:
    """A cancel voids the request and ends the execution, as nothing of it runs."""
    (one,) = await plant.create()
    await plant.advance([one])
    await plant.database.fetch(
        "update executions set status = 'CANCELING', next_due_at = tdp_now()"
        " where execution_id = $1",
        one.execution_id,
    )

    await plant.advance([one])

    assert await plant.requests(one) == [("first", 1, "VOIDED")]
    assert (await plant.execution(one))["status"] == "CANCELED"
    assert set((await plant.statuses(one)).values()) == {"CANCELED"}


async def test_repeated_wake_ups_change_nothing(plant: Plant) -> None:
    """Advancing again what has nothing new writes nothing, not even a version."""
    planted = await plant.create(count=20)
    await plant.advance(planted)
    before = await _whole_state(plant)

    for _ in range(3):
        await plant.advance(planted)

    assert await _whole_state(plant) == before


async def test_rivals_on_the_same_executions_do_each_thing_once(control_database: Database) -> None:
    """Four drivers on the same thirty executions at once: one event, one request, one version."""
    plants = [Plant(control_database) for _ in range(4)]
    planted = await plants[0].create(count=30)

    async def churn(plant: Plant) -> None:
        for _ in range(3):
            await plant.advance(planted)

    await asyncio.gather(*(churn(plant) for plant in plants))

    for one in planted:
        assert await plants[0].requests(one) == [("first", 1, "PENDING")]
        assert (await plants[0].execution(one))["version"] == 2
    attempts = [attempt for one in planted for attempt in await plants[0].dispatch(one)]
    await plants[0].succeed(attempts)
    await asyncio.gather(*(churn(plant) for plant in plants))
    for one in planted:
        assert await plants[0].requests(one) == [
            ("first", 1, "DISPATCHED"),
            ("second", 1, "PENDING"),
        ]


async def test_a_batch_writes_what_its_items_alone_would(control_database: Database) -> None:
    """The same mix of workflows, advanced together and singly, ends in the same rows."""
    definitions = [
        TWO_STEPS,
        workflow(step("each", for_each="${ input.list }", max_parallel=2, input="${ item }")),
        workflow({"key": "ask", "kind": "approval"}),
        workflow(step("skipped", when="${ false }"), output={"all": "${ input }"}),
        workflow(step("broken", input="${ input.missing }")),
    ]
    plant = Plant(control_database)
    together, singly = [], []
    for definition in definitions * 4:
        document = {"n": 1, "list": [1, 2, 3]}
        together += await plant.create(definition, input_document=document)
        singly += await plant.create(definition, input_document=document)

    await plant.advance(together)
    for one in singly:
        await plant.advance([one])

    for left, right in zip(together, singly, strict=True):
        assert await plant.statuses(left) == await plant.statuses(right)
        assert await plant.events(left) == await plant.events(right)
        assert await plant.requests(left) == await plant.requests(right)
        rows = [dict(await plant.execution(one)) for one in (left, right)]
        for row in rows:
            for varying in (
                "execution_id", "task_id", "created_at", "completed_at", "deadline_at",
                "next_due_at", "progress_event_at", "started_at",
            ):  # fmt: skip
                del row[varying]
        assert rows[0] == rows[1]


async def test_one_unreadable_snapshot_spoils_nobody_elses_advance(
    control_database: Database,
) -> None:
    """Its error is stored and shown, it waits longer each time, and is set aside in the end."""
    plant = Plant(control_database, FailurePolicy(first_wait_s=0.0, failures_max=3))
    good, bad = await plant.create(count=2)
    await control_database.fetch(
        "update executions set snapshot_digest = 'gone' where execution_id = $1", bad.execution_id
    )

    await plant.advance([good, bad])

    assert (await plant.execution(good))["status"] == "QUEUED"
    row = await plant.execution(bad)
    assert (row["status"], row["advance_failures"]) == ("CREATED", 1)
    assert "gone is not stored" in row["advance_error"]
    for _ in range(2):
        await plant.advance([good, bad])
    row = await plant.execution(bad)
    assert row["quarantined_at"] is not None
    assert row["advance_failures"] == 3
    assert (await plant.store.due(10)).execution_ids == []


async def test_an_advance_that_the_database_refuses_is_isolated(
    control_database: Database,
) -> None:
    """A row that breaks a constraint fails alone; the batch's others are written."""
    plant = Plant(control_database)
    good, bad = await plant.create(count=2)
    await control_database.fetch(
        "insert into execution_events (execution_id, sequence, event_id, type, status,"
        " progress_percent, envelope) values ($1, 2, $2, 'x', 'x', 0, '{}')",
        bad.execution_id,
        IDS.new_id(),
    )
    await control_database.fetch(
        "update executions set status = 'CANCELING' where execution_id = any($1::uuid[])",
        [good.execution_id, bad.execution_id],
    )

    await plant.advance([good, bad])

    assert (await plant.execution(good))["status"] == "CANCELED"
    row = await plant.execution(bad)
    assert "UniqueViolation" in row["advance_error"]
    # It waits for its next try, whoever wakes it.
    await plant.advance([bad])
    assert (await plant.execution(bad))["advance_failures"] == 1


async def test_a_failed_advance_recovers_when_its_cause_has_gone(
    control_database: Database,
) -> None:
    """The next advance that works forgets the failures."""
    plant = Plant(control_database, FailurePolicy(first_wait_s=0.0))
    (one,) = await plant.create()
    digest = (await plant.execution(one))["snapshot_digest"]
    change = "update executions set snapshot_digest = $2 where execution_id = $1"
    await control_database.fetch(change, one.execution_id, "gone")
    await plant.advance([one])
    await control_database.fetch(change, one.execution_id, digest)

    await plant.advance([one])

    row = await plant.execution(one)
    assert (row["status"], row["advance_failures"], row["advance_error"]) == ("QUEUED", 0, None)


async def test_the_sweep_finds_what_no_hint_announced(plant: Plant) -> None:
    """A due execution is hinted by the sweep; one that is not due only says when it will be."""
    (one,) = await plant.create()
    await plant.database.fetch(
        "update executions set next_due_at = tdp_now() + interval '1.5 s' where execution_id = $1",
        one.execution_id,
    )
    wait_s = await plant.driver.sweep(5.0)
    assert 0.5 < wait_s <= 1.5
    assert plant.hints.engine.take(10) == []

    other = Plant(plant.database)
    await plant.database.fetch("update executions set next_due_at = tdp_now()")
    await other.driver.sweep(5.0)
    assert other.hints.engine.take(10) == [one.execution_id]


async def test_a_due_time_nearer_than_the_next_sweep_wakes_it(plant: Plant) -> None:
    """A queue time-out of a second is looked at after a second, not after the sweep's interval."""
    definition = workflow(step("first", timeouts={"queue": "1s"}))
    (one,) = await plant.create(definition)
    await plant.driver.sweep(5.0)

    await plant.advance([one])

    assert plant.driver.due_wakeup.pending
    assert await plant.driver.sweep(5.0) < 1.1


async def test_a_lost_database_gives_the_hints_back(plant: Plant) -> None:
    """An advance that nobody is to blame for is tried again, and nothing is stored about it."""
    (one,) = await plant.create()
    plant.hints.engine.add([one.execution_id])
    await plant.database.close()

    with pytest.raises(UnavailableError):
        await plant.driver.advance_hinted()

    assert plant.hints.engine.take(10) == [one.execution_id]


@pytest.mark.usefixtures("armed")
@pytest.mark.parametrize("point", ["engine.commit.before", "engine.commit.after"])
async def test_a_reply_lost_around_the_commit_is_made_good(plant: Plant, point: str) -> None:
    """Whether the transaction was committed or not, the next wake-up brings the same state."""
    (one,) = await plant.create()
    install_failpoints(
        ["engine.commit.before", "engine.commit.after"],
        {"TDP_FAILPOINTS": f"{point}=drop_reply@1"},
    )
    plant.hints.engine.add([one.execution_id])
    with pytest.raises(UnavailableError):
        await plant.driver.advance_hinted()
    committed = point.endswith("after")
    assert (await plant.execution(one))["status"] == ("QUEUED" if committed else "CREATED")

    await plant.driver.advance_hinted()

    assert (await plant.execution(one))["version"] == 2
    assert await plant.requests(one) == [("first", 1, "PENDING")]


async def test_a_replica_remembers_what_it_advanced(plant: Plant) -> None:
    """A message about an event that was there before the advance needs no database."""
    (one,) = await plant.create()
    assert not plant.driver.covers(one.execution_id, 1)
    settled: list[dict[str, int]] = []
    plant.driver.on_settled(lambda sequences: settled.append(dict(sequences)))

    await plant.advance([one])

    assert plant.driver.covers(one.execution_id, 1)
    assert not plant.driver.covers(one.execution_id, 2)
    assert settled == [{one.execution_id: 1}]
