"""Due times become tasks once, whoever dies where, and as the overlap policy says."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

from control_plane.adapters.outbound.postgres.workflow_store import PostgresWorkflowStore
from control_plane.core.idempotency import RequestIdentity
from control_plane.core.schedules.domain import OverlapPolicy
from control_plane.failpoints import CONTROL_PLANE_FAILPOINTS
from foundation.errors import UnavailableError
from foundation.failpoints import install_failpoints, uninstall_failpoints
from foundation.postgres.pool import Database
from tests.integration.control_plane.schedules.clockwork import IDS, Clockwork

_POINTS = sorted(
    one for one in CONTROL_PLANE_FAILPOINTS if one.startswith(("schedule.", "intake.commit"))
)


@pytest.fixture
async def clockwork(control_database: Database) -> Clockwork:
    made = Clockwork(control_database)
    await made.prepare()
    return made


@pytest.fixture
def disarmed() -> Iterator[None]:
    """Disarms whatever failpoints the test armed."""
    yield
    uninstall_failpoints()


@pytest.mark.usefixtures("disarmed")
async def test_a_death_anywhere_neither_doubles_nor_loses(clockwork: Clockwork) -> None:
    """A replica that dies between any two steps leaves the rest to another: one task a due time."""
    for point in _POINTS:
        schedule_id = await clockwork.add(due_minutes_ago=3)
        install_failpoints(CONTROL_PLANE_FAILPOINTS, {"TDP_FAILPOINTS": f"{point}=drop_reply@1"})
        with suppress(UnavailableError):
            await clockwork.runner().run_once()
        uninstall_failpoints()

        await clockwork.settle(clockwork.runner())

        runs = await clockwork.runs(schedule_id)
        assert [one.status for one in runs] == ["STARTED"] * len(runs), point
        assert len(runs) in (4, 5), point  # Five if a minute began meanwhile.
        due = [one.due_at.isoformat().replace("+00:00", "Z") for one in runs]
        assert await clockwork.labels(schedule_id) == due, point
        assert len({one.task_id for one in runs}) == len(runs), point
        await clockwork.database.fetch("update schedules set next_time = null")


async def test_rival_replicas_share_the_work(clockwork: Clockwork) -> None:
    """Three replicas that wake at one time create each task once."""
    schedules = [await clockwork.add(due_minutes_ago=5) for _ in range(8)]
    runners = [clockwork.runner(claim_ttl_s=60.0) for _ in range(3)]

    async with asyncio.TaskGroup() as group:
        for one in runners:
            group.create_task(clockwork.settle(one))
    await clockwork.settle(*runners)

    runs = [run for one in schedules for run in await clockwork.runs(one)]
    assert {one.status for one in runs} == {"STARTED"}
    labels = [due for one in schedules for due in await clockwork.labels(one)]
    assert len(labels) == len(runs) >= 48


async def test_what_the_window_leaves_out_is_shown(clockwork: Clockwork) -> None:
    """Due times older than the catch-up window leave one mark; those inside are made up for."""
    schedule_id = await clockwork.add(due_minutes_ago=600, catch_up=timedelta(minutes=3))

    await clockwork.settle(clockwork.runner())

    runs = await clockwork.runs(schedule_id)
    assert runs[0].status == "MISSED"
    assert "catch-up window" in runs[0].reason
    assert {one.status for one in runs[1:]} == {"STARTED"}
    assert len(runs) in (4, 5)


async def test_skip_leaves_out_what_overlaps(clockwork: Clockwork) -> None:
    """While a task is not over, due times are skipped; afterwards the next one starts."""
    schedule_id = await clockwork.add(OverlapPolicy.SKIP, due_minutes_ago=2)
    runner = clockwork.runner()
    await clockwork.settle(runner)
    first, *others = await clockwork.runs(schedule_id)
    assert {one.status for one in others} == {"SKIPPED"}
    assert str(first.task_id) in others[-1].reason or "is starting" in others[-1].reason

    await clockwork.end(first.task_id)
    await clockwork.database.fetch("delete from schedule_runs where status = 'SKIPPED'")
    await clockwork.be_due(schedule_id)
    await clockwork.settle(runner)

    assert (await clockwork.statuses(schedule_id))[-1] == "STARTED"


async def test_one_run_waits_until_the_task_is_over(clockwork: Clockwork) -> None:
    """BUFFER_ONE keeps the oldest waiting run and starts it when the task has ended."""
    schedule_id = await clockwork.add(OverlapPolicy.BUFFER_ONE, due_minutes_ago=3)
    runner = clockwork.runner()
    await clockwork.settle(runner)
    first, second, *rest = await clockwork.runs(schedule_id)
    assert (first.status, second.status) == ("STARTED", "WAITING")
    assert {one.status for one in rest} == {"SKIPPED"}

    await clockwork.end(first.task_id)
    await clockwork.settle(runner)

    assert (await clockwork.statuses(schedule_id))[:2] == ["STARTED", "STARTED"]


async def test_the_newest_run_cancels_the_task_and_waits_for_its_end(clockwork: Clockwork) -> None:
    """CANCEL_OTHER asks for the cancellation once, and starts when the task is over."""
    schedule_id = await clockwork.add(OverlapPolicy.CANCEL_OTHER)
    runner = clockwork.runner()
    await clockwork.settle(runner)
    (first,) = await clockwork.runs(schedule_id)
    identity = RequestIdentity("operator:test", "TriggerSchedule", "t", b"hash")
    await clockwork.store.trigger(identity, schedule_id, None, IDS.new_id())
    await clockwork.settle(runner)
    await clockwork.settle(runner)

    assert await clockwork.statuses(schedule_id) == ["STARTED", "WAITING"]
    rows = await clockwork.database.fetch(
        "select status, (select count(*) from timeline) as acts from executions"
    )
    assert [tuple(row) for row in rows] == [("CANCELING", 1)]

    await clockwork.end(first.task_id)
    await clockwork.settle(runner)
    assert await clockwork.statuses(schedule_id) == ["STARTED", "STARTED"]


async def test_a_final_refusal_is_shown_and_the_next_due_time_tries_anew(
    clockwork: Clockwork,
) -> None:
    """A deprecated workflow fails the run at once; once there is a newer one, runs start again."""
    schedule_id = await clockwork.add()
    workflows = PostgresWorkflowStore(clockwork.database)
    await workflows.deprecate("w", "1")
    runner = clockwork.runner()
    await clockwork.settle(runner)
    (failed,) = await clockwork.runs(schedule_id)
    assert failed.status == "FAILED"
    assert failed.reason.startswith("WORKFLOW_NOT_FOUND")
    assert failed.failure_count == 1

    definition = (
        '{"name":"w","steps":[{"capability":"c","capability_version":"1","key":"a"}],"version":"2"}'
    )
    await workflows.publish("w", "2", "digest", definition)
    await clockwork.database.fetch("delete from schedule_runs")
    await clockwork.be_due(schedule_id)
    await clockwork.settle(runner)

    assert await clockwork.statuses(schedule_id) == ["STARTED"]


async def test_a_temporary_refusal_is_repeated_within_the_window(
    control_database: Database,
) -> None:
    """A full queue keeps the run PENDING with its reason; past the window it is FAILED."""
    clockwork = Clockwork(control_database, queued_max=0)
    await clockwork.prepare()
    schedule_id = await clockwork.add()
    runner = clockwork.runner()
    await runner.run_once()
    await runner.run_once()
    (pending,) = await clockwork.runs(schedule_id)
    assert pending.status == "PENDING"
    assert pending.reason.startswith("QUEUE_FULL")
    assert pending.available_at is not None

    await control_database.fetch(
        "update schedule_runs set due_at = due_at - interval '2 hours', available_at = tdp_now()"
    )
    await runner.run_once()
    (failed,) = await clockwork.runs(schedule_id)
    assert failed.status == "FAILED"
    assert failed.failure_count >= 2


async def test_history_is_bounded(clockwork: Clockwork) -> None:
    """Only the newest settled runs of a schedule are kept; its live ones stay."""
    schedule_id = await clockwork.add()
    await clockwork.database.fetch(
        "insert into schedule_runs (run_id, schedule_id, due_at, triggered, status, task,"
        " settled_at) select gen_random_uuid(), $1, tdp_now() - number * interval '1 day', false,"
        " 'SKIPPED', '{}', tdp_now() from generate_series(1, 300) as number",
        schedule_id,
    )

    await clockwork.settle(clockwork.runner())

    assert len(await clockwork.runs(schedule_id)) in (200, 201)


async def test_a_deleted_schedule_settles_what_may_have_started(clockwork: Clockwork) -> None:
    """A run that was claimed before the deletion still finds its task; others are left out."""
    schedule_id = await clockwork.add(OverlapPolicy.BUFFER_ONE, due_minutes_ago=1)
    install_failpoints(
        CONTROL_PLANE_FAILPOINTS, {"TDP_FAILPOINTS": "schedule.settle.before=drop_reply@1"}
    )
    try:
        with pytest.raises(UnavailableError):
            await clockwork.runner().run_once()
    finally:
        uninstall_failpoints()
    identity = RequestIdentity("operator:test", "DeleteSchedule", "d", b"hash")
    await clockwork.store.delete(identity, schedule_id, None)

    await clockwork.settle(clockwork.runner())

    statuses = await clockwork.statuses(schedule_id)
    assert statuses[0] == "STARTED"
    assert set(statuses[1:]) <= {"SKIPPED"}
    assert len(await clockwork.labels(schedule_id)) == 1
