"""Retention: what is over goes with all that hangs on it, and nothing else goes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from control_plane.adapters.outbound.postgres.retention_store import PostgresRetentionStore
from control_plane.core.retention.application import PASS_INTERVAL_S, Retention
from control_plane.core.retention.domain import RetentionAges
from control_plane.policies import event_policy
from foundation.clock import ManualClock
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.postgres.pool import Database
from tests.integration.control_plane.nodes.world import Attempt, World, success
from tests.integration.control_plane.test_conservation import TELL, script

AGES = RetentionAges(finished=timedelta(days=30), published=timedelta(days=7))
TELL_ALL = f"""
{TELL}
insert into outbox_events (outbox_id, destination, payload, execution_id)
select execution_id, 'jetstream', '{{}}', execution_id from executions;
insert into timeline (execution_id, type, actor) select execution_id, 'x', 'y' from executions;
insert into grants (grant_id, attempt_id, lease_version, idempotency_key, resource_ref, method,
    secret, expires_at)
select attempt_id, attempt_id, 1, 'k', 'r', 'GET', '', tdp_now() from attempts;
insert into artifact_commits (outbox_id, destination, payload, execution_id, application_id, status,
    published_at)
select attempt_id, 'a', '{{}}', execution_id, application_id, 'PUBLISHED', tdp_now() from attempts;
"""  # noqa: S608 - constants of this test
TABLES_OF_WORK = {
    "artifact_commits", "artifacts", "attempt_inbox", "attempts", "callback_deliveries",
    "execution_events", "executions", "grants", "node_commands", "outbox_events",
    "scheduling_requests", "steps", "tasks", "timeline",
}  # fmt: skip
DELIVER = """
update outbox_events set status = 'PUBLISHED', published_at = created_at;
update callback_deliveries set status = 'PUBLISHED', published_at = created_at
where execution_id <> $1::uuid;
"""
FINISH = """
update executions set status = 'SUCCEEDED', progress_percent = 100,
    completed_at = tdp_now() - $2::interval
where execution_id = any($1::uuid[])
"""
IDS_OF_WORK = """
select table_name, column_name from information_schema.columns
inner join information_schema.tables using (table_schema, table_name)
where table_schema = 'public' and table_type = 'BASE TABLE'
    and column_name in ('execution_id', 'task_id', 'attempt_id')
    and table_name <> 'schedule_runs'
"""


def store_of(database: Database) -> PostgresRetentionStore:
    wake_ups = PostgresOutboxStore(database, event_policy(60.0, 60.0), table="outbox_events")
    return PostgresRetentionStore(database, wake_ups)


async def finished(world: World) -> list[Attempt]:
    """Attempts of as many tasks: all have ended, all is told but one of the second's callbacks."""
    node_id = await world.add_node()
    attempts = [await world.new_attempt(node_id) for _ in range(4)]
    for attempt in attempts:
        await world.allocate(attempt, f"of-{attempt.attempt_id}")
    await script(world.database, TELL_ALL)
    await world.inbox.accept([success(one) for one in attempts[:3]])
    await world.rows(DELIVER.split(";", maxsplit=1)[0])
    await world.rows(DELIVER.split(";")[1], attempts[1].execution_id)
    old = [one.execution_id for one in attempts[:2]]
    await world.rows(FINISH, old, timedelta(days=31))
    await world.rows(FINISH, [attempts[2].execution_id], timedelta(days=29))
    return attempts


async def mentions(world: World, table: str, column: str) -> set[str]:
    return {str(one) for (one,) in await world.rows(f"select {column} from {table}")}  # noqa: S608


async def test_what_is_over_goes_whole(control_database: Database) -> None:
    """An old task leaves no row in any table; live, young and untold ones keep each of theirs."""
    world = World(control_database)
    gone, untold, young, live = await finished(world)
    await world.rows(
        "insert into callback_log (outbox_id, kind, detail) select outbox_id, 'failed', ''"
        " from callback_deliveries"
    )
    work = await world.rows(IDS_OF_WORK)
    assert {table for table, _ in work} == TABLES_OF_WORK, "a new table: let retention remove it"
    columns = [*work, ("callback_log", "outbox_id")]
    before = {one: await mentions(world, *one) for one in columns}
    task_of = dict(await world.rows("select execution_id::text, task_id::text from executions"))
    swept = await store_of(control_database).remove_finished(timedelta(days=30), None, 10)
    assert (swept.removed_count, swept.next_place) == (1, None)
    ids = {gone.execution_id, gone.attempt_id, task_of[gone.execution_id]}
    for one, known in before.items():
        assert await mentions(world, *one) == known - ids, one
    assert any(known & ids for known in before.values())
    for kept in (untold, young, live):
        assert await world.value(
            "select true from executions where execution_id = $1", kept.execution_id
        )


async def test_a_pass_is_walked_in_batches(control_database: Database) -> None:
    """What has to stay is passed over, and the next batch goes on behind it."""
    world, store = World(control_database), store_of(control_database)
    await finished(world)
    await world.rows("update executions set completed_at = tdp_now() - interval '40 days'"
                     " where completed_at is not null")  # fmt: skip
    removed, place, batches = 0, None, 0
    while batches == 0 or place is not None:
        swept = await store.remove_finished(timedelta(days=30), place, 1)
        removed, place, batches = removed + swept.removed_count, swept.next_place, batches + 1
    assert (removed, batches) == (2, 4)


async def test_a_task_somebody_works_on_is_passed_over(control_database: Database) -> None:
    """A task that a rerun has locked stays until the next pass."""
    world, store = World(control_database), store_of(control_database)
    await finished(world)
    async with control_database.transaction() as rival:
        await rival.fetch("select 1 from tasks for update")
        assert (await store.remove_finished(timedelta(days=30), None, 10)).removed_count == 0
    assert (await store.remove_finished(timedelta(days=30), None, 10)).removed_count == 1


async def test_records_outlive_30_days_and_their_task(control_database: Database) -> None:
    """A record goes when it is old and its task gone; those of other things stay for good."""
    world, store = World(control_database), store_of(control_database)
    await finished(world)
    await world.rows(
        "insert into idempotency_records (principal, operation, key, request_hash, answer)"
        " values ('operator:a', 'RegisterApplication', 'k', '', 'no json'),"
        " ('operator:a', 'CreateApiKey', 'l', '', '{\"api_key_id\": \"1\"}')"
    )
    await store.remove_finished(timedelta(days=30), None, 10)
    assert (await store.remove_records(AGES.records, None, 100)).removed_count == 0
    await world.rows("update idempotency_records set created_at = tdp_now() - interval '32 days'")
    swept = await store.remove_records(AGES.records, None, 2)
    assert swept.next_place is not None
    rest = await store.remove_records(AGES.records, swept.next_place, 100)
    assert swept.removed_count + rest.removed_count == 1
    assert await world.value("select count(*) from idempotency_records") == 5


async def test_places_never_committed_go_after_a_day(control_database: Database) -> None:
    """Places of ended attempts go; those committed, young, or of live attempts stay."""
    world, store = World(control_database), store_of(control_database)
    first, second, _third, live = await finished(world)
    await world.rows("update artifacts set created_at = tdp_now() - interval '25 hours'")
    await world.rows("update artifacts set status = 'COMMITTED' where attempt_id = $1",
                     first.attempt_id)  # fmt: skip
    await world.allocate(second, "young")
    await store.remove_uncommitted(AGES.uncommitted, None, 10)
    left = set(await world.rows("select relative_path from artifacts"))
    assert left == {(f"of-{first.attempt_id}",), (f"of-{live.attempt_id}",), ("young",)}


async def test_delivered_wake_ups_go(control_database: Database) -> None:
    """Wake-ups that were delivered go after a week; open ones never do."""
    world, store = World(control_database), store_of(control_database)
    await finished(world)
    await world.rows("update outbox_events set published_at = tdp_now() - interval '8 days'")
    await world.rows("update outbox_events set status = 'FAILED', published_at = null where"
                     " outbox_id in (select outbox_id from outbox_events limit 1)")  # fmt: skip
    assert await store.remove_published(AGES.published, 10) == 3


async def test_the_loop_rests_between_passes(control_database: Database) -> None:
    """While there is more it pauses shortly, else till the next pass; with no age, tasks stay."""
    world, clock = World(control_database), ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    await finished(world)
    keeping = Retention(
        store_of(control_database), replace(AGES, finished=None), clock, batch_size=10
    )
    assert await keeping.run_once() == PASS_INTERVAL_S
    assert await world.value("select count(*) from tasks") == 4
    removing = Retention(store_of(control_database), AGES, clock, batch_size=1)
    waits = []
    for _ in range(5):
        waits.append(await removing.run_once())
        clock.advance(waits[-1])
    assert waits[0] < 1.0
    assert await world.value("select count(*) from tasks") == 3
