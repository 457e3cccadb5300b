"""Each batched store method against one item at a time, with repeats and concurrent writers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from control_plane.core.executions.attempt_state import StopReason
from control_plane.core.executions.domain import AttemptId
from control_plane.core.executions.failures import Failure
from control_plane.core.executions.outcomes import Settlement
from control_plane.core.nodes.domain import (
    CommandAck,
    CommandDemand,
    HeartbeatList,
    NodeEvent,
    ProgressMark,
    SessionRef,
    WorkSucceeded,
)
from control_plane.core.nodes.leases import PRODUCTION_FIGURES
from foundation.postgres.pool import Database, DatabaseConfig
from tests.fixtures.databases import FreshDatabase, TemplateSource
from tests.integration.control_plane.nodes.world import (
    IDS,
    Attempt,
    World,
    event,
    failure,
    reported,
    stop_report,
    success,
)

ATTEMPT_COUNT = 12
SEEDS = range(12)


async def _scene(world: World) -> tuple[list[SessionRef], list[Attempt]]:
    """Two nodes in session, and attempts that are partly sent, accepted or told to stop."""
    sessions = []
    for name in ("one", "two"):
        node_id = await world.add_node(name)
        sessions.append(SessionRef(node_id, (await world.open(node_id)).generation))
    attempts: list[Attempt] = []
    for number in range(ATTEMPT_COUNT):
        session = sessions[number % 2]
        execution_id = (
            attempts[-2].execution_id
            if number % 4 == 2
            else await world.add_execution("work", "once")
        )
        key = "once" if number % 4 == 2 else "work"
        attempts.append(await world.dispatch(execution_id, session.node_id, key))
        if number == ATTEMPT_COUNT - 3:
            await world.commands.take([CommandDemand(one, 8, 8) for one in sessions])
    for attempt, reason in zip(attempts, ("CANCEL", "TIMEOUT"), strict=False):
        await world.database.fetch(
            "update attempts set stop_reason = $2 where attempt_id = $1",
            attempt.attempt_id,
            reason,
        )
    for attempt in attempts[6:9]:
        await world.allocate(attempt, "p")
    return sessions, attempts


def _some_event(random: Random, attempt: Attempt, attempts: list[Attempt]) -> NodeEvent:
    kinds: list[Callable[[], NodeEvent]] = [
        lambda: failure(attempt, retryable=random.random() < 0.5),
        lambda: stop_report(attempt, random.choice([None, *StopReason])),
        lambda: success(attempt, lease_version=2),
        lambda: success(attempt, node_id=random.choice(attempts).node_id),
        lambda: success(attempt, attempt_id=IDS.new_id()),
        lambda: event(attempt, reported("p")),
        lambda: event(attempt, WorkSucceeded('{"a":1}', 1, "c")),
        lambda: success(attempt, "[]"),
        lambda: success(attempt),
    ]
    return random.choice(kinds)()


def _some_events(random: Random, attempts: list[Attempt]) -> list[NodeEvent]:
    events = [
        _some_event(random, random.choice(attempts), attempts) for _ in range(random.randrange(30))
    ]
    events += random.choices(events, k=len(events) // 3) if events else []
    random.shuffle(events)
    return events


Pair = tuple[World, World]


@pytest.fixture
def two_databases(
    make_postgres_database: Callable[[TemplateSource | None], FreshDatabase],
    postgres_template_source: TemplateSource,
) -> list[FreshDatabase]:
    return [make_postgres_database(postgres_template_source) for _ in range(2)]


@pytest.fixture
async def twins(two_databases: list[FreshDatabase]) -> AsyncIterator[Pair]:
    """Two worlds; what the first holds is copied into the second before they part."""
    first, second = [
        Database(DatabaseConfig(one.dsn, "twin", pool_size_max=4)) for one in two_databases
    ]
    async with first, second:
        # Long leases, so that the time between the two sides decides nothing.
        left = World(first, PRODUCTION_FIGURES)
        right = World(
            second,
            PRODUCTION_FIGURES,
            replica_id=left.replica_id,
            application_id=left.application_id,
        )
        yield left, right


async def _copy(left: World, right: World) -> None:
    """Make the right database's rows those of the left."""
    tables = [
        "workflow_snapshots",
        "tasks",
        "executions",
        "steps",
        "scheduling_requests",
        "attempts",
        "nodes",
        "capability_schemas",
        "node_capabilities",
        "node_commands",
        "artifacts",
    ]
    for table in reversed(tables):
        await right.database.fetch(f"delete from {table}")  # noqa: S608 - a name from above
    for table in tables:
        columns = await left.value(
            "select string_agg(column_name, ', ') from information_schema.columns"
            " where table_name = $1 and is_generated = 'NEVER'",
            table,
        )
        rows = await left.database.fetch(
            f"select row_to_json({table})::text from {table}"  # noqa: S608 - a name from above
        )
        insert = (
            f"insert into {table} ({columns})"  # noqa: S608 - names from above
            f" select {columns} from json_populate_record(null::{table}, $1::json)"
        )
        for row in rows:
            await right.database.fetch(insert, row[0])


async def _clear(world: World) -> None:
    for table in ("attempt_inbox", "artifact_commits", "timeline", "nodes", "tasks", "executions"):
        await world.database.fetch(f"truncate {table} cascade")
    for table in ["steps", "scheduling_requests", "attempts", "node_commands", "artifacts"]:
        await world.database.fetch(f"truncate {table}")


async def test_a_batch_of_events_does_what_they_do_one_by_one(
    twins: Pair,
) -> None:
    """Any mix of events, with repeats: the same fates and the same rows as singly."""
    left, right = twins
    for seed in SEEDS:
        random = Random(seed)
        await _clear(left)
        await _clear(right)
        _, attempts = await _scene(left)
        await _copy(left, right)
        events = _some_events(random, attempts)
        together, _ = await left.accept(events) if events else ([], None)
        singly = [(await right.accept([one]))[0][0] for one in events]
        assert list(together) == singly, f"seed {seed}"
        assert await left.dump() == await right.dump(), f"seed {seed}"
        pending = [
            Settlement(AttemptId(one.attempt_id), None if random.random() < 0.5 else _REFUSED)
            for one in attempts
        ]
        await left.inbox.settle([*pending, *pending])
        for one in pending:
            await right.inbox.settle([one])
        assert await left.dump() == await right.dump(), f"seed {seed}, settled"


_REFUSED = Failure("ARTIFACT_MISMATCH", "other bytes", retryable=True)


async def test_batches_of_commands_acks_and_progress_do_what_single_ones_do(
    twins: Pair,
) -> None:
    """Demands, acks (repeated, stale, too high) and progress, together and singly."""
    left, right = twins
    for seed in SEEDS:
        random = Random(seed)
        await _clear(left)
        await _clear(right)
        sessions, attempts = await _scene(left)
        await _copy(left, right)
        demands = [CommandDemand(one, random.randrange(6), random.randrange(9)) for one in sessions]
        stale = SessionRef(sessions[0].node_id, sessions[0].generation - 1)
        taken = await left.commands.take(demands)
        single = [one for each in demands for one in await right.commands.take([each])]
        assert sorted((one.node_id, one.sequence) for one in taken) == sorted(
            (one.node_id, one.sequence) for one in single
        ), f"seed {seed}"
        acks = [
            CommandAck(random.choice([*sessions, stale]), random.randrange(9)) for _ in range(6)
        ]
        await left.commands.ack(acks)
        for one in acks:
            await right.commands.ack([one])
        marks = [
            ProgressMark(
                random.choice(sessions).node_id,
                random.choice(attempts).attempt_id,
                random.choice([1, 1, 2]),
                random.randrange(101),
            )
            for _ in range(20)
        ]
        await left.leases.write_progress(marks)
        for mark in marks:
            await right.leases.write_progress([mark])
        assert await left.dump() == await right.dump(), f"seed {seed}"


async def test_a_tick_over_many_sessions_answers_what_single_ones_do(
    twins: Pair,
) -> None:
    """Renewed and lost leases are those that a tick for each session alone would name."""
    left, right = twins
    for seed in SEEDS:
        random = Random(seed)
        await _clear(left)
        await _clear(right)
        sessions, attempts = await _scene(left)
        for attempt in attempts:
            await left.database.fetch(
                "update attempts set lease_expires_at = tdp_now() + make_interval(secs => $2)"
                " where attempt_id = $1",
                attempt.attempt_id,
                random.choice([-2.0, 25.0, 45.0, 59.0, 500.0]),
            )
        await _copy(left, right)
        for world in (left, right):
            await world.database.fetch(
                "update lease_guard set stamped_at = tdp_now(), hold_until = tdp_now()"
            )
        lists = [
            HeartbeatList(one, [each.lease for each in random.sample(attempts, 8)])
            for one in sessions
        ]
        together = await left.leases.tick(sessions, lists)
        for one in lists:
            alone = await right.leases.tick([one.session], [one])
            node_id = one.session.node_id
            for name in ("renewed", "lost"):
                assert set(getattr(together, name).get(node_id, ())) == set(
                    getattr(alone, name).get(node_id, ())
                ), f"seed {seed}"


async def test_concurrent_writers_count_each_attempt_once(world: World) -> None:
    """The same events from many connections, sweeps and acks between them: one effect each."""
    sessions, attempts = await _scene(world)
    random = Random(5)
    events = [success(one) for one in attempts]

    async def report() -> list[bool]:
        mixed = random.sample(events, len(events))
        fates, _ = await world.accept(mixed)
        by_id = {fate.event_id: fate.accepted for fate in fates}
        return [by_id[one.event_id] for one in events]

    async def disturb() -> None:
        for session in sessions:
            await world.commands.ack([CommandAck(session, 6)])
            await world.commands.take([CommandDemand(session, 8, 8)])
        await world.leases.expire()
        await world.leases.tick(
            sessions, [HeartbeatList(one, [each.lease for each in attempts]) for one in sessions]
        )

    answers = [
        one
        for one in await asyncio.gather(
            report(), disturb(), report(), disturb(), report(), report()
        )
        if one is not None
    ]
    assert all(one == answers[0] for one in answers)
    # All but the one that was told to stop by a time-out.
    assert answers[0].count(True) == ATTEMPT_COUNT - 1
    for session in sessions:
        node = await world.fetch_node(session.node_id)
        assert node["running_count"] == node["process_running_count"] == 0
        assert node["reserved_cpu_millis"] == 0
    assert await world.value("select min(duplicate_count) from attempt_inbox") == 3
    assert await world.value("select max(duplicate_count) from attempt_inbox") == 3
