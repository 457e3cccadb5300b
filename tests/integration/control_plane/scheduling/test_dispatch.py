"""Claim, plan, dispatch on a real PostgreSQL: each attempt once, no node above what it has."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from control_plane.adapters.outbound.postgres.scheduling_store import release_requests
from control_plane.core.nodes.commands import RunPayload
from control_plane.core.scheduling.dispatching import Fate
from foundation.errors import UnavailableError
from foundation.failpoints import install_failpoints, uninstall_failpoints
from foundation.postgres.pool import Connection, Database
from tests.integration.control_plane.engine.plant import IDS, step, workflow
from tests.integration.control_plane.nats.rig import until
from tests.integration.control_plane.scheduling.yard import NodeSpec, Yard


@pytest.fixture
def yard(control_database: Database) -> Yard:
    return Yard(control_database)


@pytest.fixture
def armed() -> Iterator[None]:
    """Disarms whatever failpoints the test armed."""
    yield
    uninstall_failpoints()


async def test_a_dispatch_writes_attempt_command_and_event(yard: Yard) -> None:
    """The first attempt of an execution: everything a node needs, and execution.started."""
    node_id = await yard.add_node()
    (one,) = await yard.plant.create(
        input_document={"n": 12345678901234567890}, callback_url="https://a.example/cb"
    )
    await yard.plant.advance([one])

    await yard.scheduler.run_once()

    (attempt,) = await yard.attempts()
    assert (attempt["status"], attempt["number"], attempt["lease_version"]) == ("DISPATCHED", 1, 1)
    assert str(attempt["node_id"]) == node_id
    lease_s = (attempt["lease_expires_at"] - attempt["dispatched_at"]).total_seconds()
    assert lease_s == pytest.approx(600.0)
    command = await yard.database.fetchrow("select * from node_commands")
    assert command is not None
    assert (command["kind"], command["status"], command["sequence"]) == ("RUN", "PENDING", 1)
    payload = RunPayload.from_json(command["payload"])
    assert payload.attempt_id == str(attempt["attempt_id"])
    assert payload.input_json == '{"from":12345678901234567890}'
    assert payload.run_timeout_s == pytest.approx(3_600.0)
    assert await yard.plant.events(one) == [
        (1, "execution.created", "CREATED"),
        (2, "execution.started", "RUNNING"),
    ]
    row = await yard.plant.execution(one)
    assert (row["status"], row["version"], row["last_sequence"]) == ("RUNNING", 3, 2)
    assert row["started_at"] is not None
    assert await yard.plant.statuses(one) == {"first": "RUNNING", "second": "PENDING"}
    assert await yard.plant.requests(one) == [("first", 1, "DISPATCHED")]
    entries = await yard.database.fetch("select type, actor, detail from timeline")
    assert [(entry["type"], entry["actor"]) for entry in entries] == [
        ("attempt.dispatched", "scheduler")
    ]
    assert yard.plant.hints.nodes.take(10) == [node_id]
    await yard.check()


async def test_an_execution_runs_through_engine_and_scheduler(yard: Yard) -> None:
    """Forty two-step tasks on four process slots, hints alone driving it, end SUCCEEDED."""
    await yard.add_node(NodeSpec(slots=20, process_slots=4))
    planted = await yard.plant.create(count=40)
    await yard.plant.advance(planted)

    rounds = 0
    while await yard.plant.unfinished():
        rounds += 1
        assert rounds < 100, "it does not end"
        await yard.scheduler.run_once()
        await yard.check()
        live = await yard.plant.live_attempts()
        assert live, "nothing runs, and not all is done"
        await yard.plant.succeed(live)
        await yard.plant.advance_all()

    for one in planted:
        types = [kind for _, kind, _ in await yard.plant.events(one)]
        assert types[:2] == ["execution.created", "execution.started"]
        assert types[-1] == "execution.succeeded"
        assert types.count("execution.started") == 1
        sequences = [sequence for sequence, _, _ in await yard.plant.events(one)]
        assert sequences == list(range(1, len(sequences) + 1))


async def test_what_finds_no_node_is_parked_with_its_reasons(yard: Yard) -> None:
    """Five requests on a node of two slots: three wait, and say why, until there is room."""
    await yard.add_node(NodeSpec(slots=2))
    planted = await yard.plant.create(count=5)
    await yard.plant.advance(planted)
    await yard.scheduler.run_once()
    waiting = [row for row in await yard.requests() if row["status"] == "PENDING"]
    assert len(waiting) == 3
    assert "Of 1 known nodes none can take c 1 now" in json.loads(waiting[0]["reasons"])[0]
    assert "slots of the node are taken" in json.loads(waiting[0]["reasons"])[1]
    assert not waiting[0]["never_satisfiable"]

    # Nothing is free: a wake-up takes nothing, and moves nothing.
    await yard.scheduler.run_once()
    assert len(await yard.attempts()) == 2

    await yard.plant.succeed((await yard.plant.live_attempts())[:1])
    await yard.scheduler.run_once()
    assert len(await yard.attempts()) == 3
    await yard.check()


async def test_what_no_node_could_ever_do_is_flagged(yard: Yard) -> None:
    """A pinned group that no node has: the request says so, and waits."""
    await yard.add_node()
    definition = workflow(step("first", affinity={"group": "gpu"}))
    (one,) = await yard.plant.create(definition)
    await yard.plant.advance([one])

    await yard.scheduler.run_once()

    (request,) = await yard.requests()
    assert request["never_satisfiable"]
    assert "could ever run c 1" in request["reasons"]

    gpu_node_id = await yard.add_node(NodeSpec(group="gpu"))
    await yard.database.fetch(
        "update nodes set management = 'CORDONED' where node_id = $1", gpu_node_id
    )
    await yard.scheduler.run_once()
    (request,) = await yard.requests()
    assert not request["never_satisfiable"]
    assert "Of 2 known nodes none can take c 1 now" in request["reasons"]

    await yard.database.fetch("update nodes set management = 'ACTIVE'")
    await yard.scheduler.run_once()
    assert len(await yard.attempts()) == 1


async def test_another_replica_finds_what_this_one_parked(yard: Yard) -> None:
    """A scheduler that starts later learns of parked requests by its own sweep."""
    (one,) = await yard.plant.create()
    await yard.plant.advance([one])
    await yard.scheduler.run_once()
    await yard.add_node()

    await yard.new_scheduler(yard.new_store()).run_once()

    assert len(await yard.attempts()) == 1


async def test_a_paused_execution_starts_nothing_until_resumed(yard: Yard) -> None:
    """Its request rests with that reason, leaves the slots to others, and goes on when resumed."""
    await yard.add_node(NodeSpec(slots=1))
    paused, other = await yard.plant.create(count=2)
    await yard.plant.advance([paused])
    await yard.database.fetch(
        "update executions set paused = true where execution_id = $1", paused.execution_id
    )
    await yard.scheduler.run_once()
    assert await yard.attempts() == []
    (request,) = await yard.requests()
    assert "paused" in request["reasons"]

    await yard.plant.advance([other])
    await yard.scheduler.run_once()
    await yard.plant.succeed(await yard.plant.live_attempts())
    await yard.scheduler.run_once()
    assert {str(row["execution_id"]) for row in await yard.attempts()} == {other.execution_id}

    async def resume(connection: Connection) -> None:
        await connection.execute(
            "update executions set paused = false where execution_id = $1", paused.execution_id
        )
        await release_requests(connection, paused.execution_id)

    await yard.database.run_transaction(resume)
    await yard.scheduler.run_once()
    assert len(await yard.attempts()) == 2


async def test_an_input_that_breaks_the_schema_fails_the_step(yard: Yard) -> None:
    """Nothing is sent; the step fails for good with the place that is wrong."""
    await yard.add_node()
    await yard.database.fetch(
        "insert into capability_schemas (capability, version, input_schema, output_schema,"
        " first_node_id) values ('c', '1', $1, '{}', gen_random_uuid())",
        json.dumps({"type": "object", "properties": {"from": {"type": "string"}}}),
    )
    (one,) = await yard.plant.create()
    await yard.plant.advance([one])

    await yard.scheduler.run_once()
    await yard.plant.advance_all()

    assert await yard.attempts() == []
    assert await yard.plant.statuses(one) == {"first": "FAILED", "second": "CANCELED"}
    row = await yard.plant.execution(one)
    assert row["status"] == "FAILED"
    cause = json.loads(row["failure"])["cause"]
    assert cause["reason"] == "INPUT_INVALID"
    assert "input.from" in cause["message"]


async def test_a_request_whose_step_went_on_is_voided(yard: Yard) -> None:
    """A cancel between claim and dispatch: no attempt, and the request is over."""
    await yard.add_node()
    (one,) = await yard.plant.create()
    await yard.plant.advance([one])
    claim_id, placements = await yard.claim()
    await yard.database.fetch("update executions set status = 'CANCELING'")

    done = await yard.store.dispatch(claim_id, placements)

    assert list(done.fates.values()) == [Fate.VOIDED]
    assert await yard.plant.requests(one) == [("first", 1, "VOIDED")]
    assert await yard.attempts() == []


async def test_an_attempt_that_is_there_completes_the_request(yard: Yard) -> None:
    """A dispatch whose reply was lost is repeated under a new claim: found, not doubled."""
    node_id = await yard.add_node()
    (one,) = await yard.plant.create()
    await yard.plant.advance([one])
    await yard.scheduler.run_once()
    await yard.database.fetch(
        "update scheduling_requests set status = 'PENDING', available_at = tdp_now()"
    )
    claim_id, placements = await yard.claim()

    done = await yard.store.dispatch(claim_id, placements)

    assert list(done.fates.values()) == [Fate.KNOWN]
    assert done.node_ids == {node_id}
    assert await yard.plant.requests(one) == [("first", 1, "DISPATCHED")]
    assert len(await yard.attempts()) == 1
    await yard.check()


async def test_a_claim_that_was_taken_over_dispatches_nothing(yard: Yard) -> None:
    """A scheduler that stalled past its claim's end finds another's claim and leaves it alone."""
    await yard.add_node()
    planted = await yard.plant.create(count=3)
    await yard.plant.advance(planted)
    old_claim, placements = await yard.claim()
    await yard.database.fetch("update scheduling_requests set available_at = tdp_now()")
    new_claim, _ = await yard.claim()

    late = await yard.store.dispatch(old_claim, placements)
    done = await yard.store.dispatch(new_claim, placements)

    assert set(late.fates.values()) == {Fate.LOST}
    assert set(done.fates.values()) == {Fate.DISPATCHED}
    assert len(await yard.attempts()) == 3


async def test_a_node_that_filled_up_meanwhile_sends_the_request_back(yard: Yard) -> None:
    """Room that a plan saw and that is gone at dispatch: the request is looked at again at once."""
    await yard.add_node(NodeSpec(slots=1))
    planted = await yard.plant.create(count=2)
    await yard.plant.advance(planted)
    claim_id, placements = await yard.claim()

    done = await yard.store.dispatch(claim_id, placements)

    assert sorted(done.fates.values()) == [Fate.CROWDED, Fate.DISPATCHED]
    assert sorted(row["status"] for row in await yard.requests()) == ["DISPATCHED", "PENDING"]
    assert len((await yard.store.claim(IDS.new_id(), 10, [])).requests) == 1
    await yard.check()


async def test_a_slot_that_is_being_taken_is_waited_for(yard: Yard) -> None:
    """A rival has the node's row locked and takes its last slot: the dispatch sees that."""
    await yard.add_node(NodeSpec(slots=1))
    (one,) = await yard.plant.create()
    await yard.plant.advance([one])
    claim_id, placements = await yard.claim()

    async with asyncio.TaskGroup() as group, yard.database.transaction() as rival:
        await rival.execute("update nodes set running_count = 1")
        ours = group.create_task(yard.store.dispatch(claim_id, placements), name="dispatch")
        await until(yard.somebody_waits_for_a_lock, what="the dispatch waits for the node")

    assert list(ours.result().fates.values()) == [Fate.CROWDED]
    assert await yard.attempts() == []


async def test_paused_work_does_not_stand_in_front(yard: Yard) -> None:
    """Of two parked requests the older one's execution is paused: the slot goes to the other."""
    paused, other = await yard.plant.create(count=2)
    for one in (paused, other):
        await yard.plant.advance([one])
        await yard.scheduler.run_once()
    await yard.database.fetch(
        "update executions set paused = true where execution_id = $1", paused.execution_id
    )
    await yard.add_node(NodeSpec(slots=1))

    await yard.scheduler.run_once()

    assert [str(row["execution_id"]) for row in await yard.attempts()] == [other.execution_id]


@pytest.mark.parametrize(
    "change",
    [
        "update nodes set management = 'CORDONED'",
        "update nodes set runtime = 'SILENT'",
        "update nodes set last_seen_at = tdp_now() - interval '601 seconds'",
        "update replicas set stamped_at = tdp_now() - interval '301 seconds'",
        "update node_capabilities set refusal = 'other schema'",
    ],
)
async def test_a_node_that_may_not_work_gets_none(yard: Yard, change: str) -> None:
    """Cordoned, silent, unheard of, its replica dead, or refused: nothing is dispatched to it."""
    await yard.add_node()
    (one,) = await yard.plant.create()
    await yard.plant.advance([one])
    await yard.database.fetch(change)

    await yard.scheduler.run_once()

    assert await yard.attempts() == []
    assert (await yard.requests())[0]["reasons"] is not None


async def test_rival_schedulers_double_nothing(yard: Yard) -> None:
    """Three schedulers at once on sixty requests and two nodes: each once, no slot twice."""
    for slots in (7, 5):
        await yard.add_node(NodeSpec(slots=slots))
    planted = await yard.plant.create(count=60)
    await yard.plant.advance(planted)
    schedulers = [yard.scheduler, *(yard.new_scheduler(yard.new_store()) for _ in range(2))]

    async def serve(one: int) -> None:
        for _ in range(4):
            await schedulers[one].run_once()

    for _ in range(6):
        await asyncio.gather(*(serve(one) for one in range(3)))
        await yard.check()
        await yard.plant.succeed(await yard.plant.live_attempts())

    rows = await yard.attempts()
    keys = [(row["execution_id"], row["step_key"], row["number"]) for row in rows]
    assert len(set(keys)) == len(keys) == 60


@pytest.mark.usefixtures("armed")
@pytest.mark.parametrize("point", ["dispatch.commit.before", "dispatch.commit.after"])
async def test_a_reply_lost_around_the_commit_doubles_nothing(yard: Yard, point: str) -> None:
    """After the claim's end the request is taken again; there is one attempt in the end."""
    await yard.add_node()
    (one,) = await yard.plant.create()
    await yard.plant.advance([one])
    install_failpoints(
        ["dispatch.commit.before", "dispatch.commit.after"],
        {"TDP_FAILPOINTS": f"{point}=drop_reply@1"},
    )
    with pytest.raises(UnavailableError):
        await yard.scheduler.run_once()
    assert len(await yard.attempts()) == (1 if point.endswith("after") else 0)
    await yard.database.fetch("update scheduling_requests set available_at = tdp_now()")

    await yard.scheduler.run_once()

    assert len(await yard.attempts()) == 1
    assert await yard.plant.requests(one) == [("first", 1, "DISPATCHED")]
    await yard.check()


async def test_a_retry_waits_for_its_time(yard: Yard) -> None:
    """A request in back-off is not taken before; the loop knows when it will be due."""
    await yard.add_node()
    definition = workflow(step("first", retry={"max_attempts": 2, "initial_delay": "20s"}))
    (one,) = await yard.plant.create(definition)
    await yard.plant.advance([one])
    await yard.scheduler.run_once()
    await yard.plant.fail(await yard.plant.live_attempts(), retryable=True)

    due_in_s = await yard.scheduler.run_once()

    assert due_in_s is not None
    assert 10 < due_in_s <= 24
    assert len(await yard.attempts()) == 1
    await yard.database.fetch("update scheduling_requests set available_at = tdp_now()")
    await yard.scheduler.run_once()
    assert [row["number"] for row in await yard.attempts()] == [1, 2]
    assert [row["lease_version"] for row in await yard.attempts()] == [1, 2]


async def test_resources_are_reserved(yard: Yard) -> None:
    """Steps that need 600 of 1,000 thousandths of a core run one after another."""
    await yard.add_node(NodeSpec(slots=4, cpu_millis=1_000))
    definition = workflow(
        step("first", affinity={"minimum_resources": {"cpu_millis": 600}}),
    )
    planted = await yard.plant.create(definition, count=3)
    await yard.plant.advance(planted)
    for _ in range(3):
        await yard.scheduler.run_once()
        assert len(await yard.plant.live_attempts()) == 1
        await yard.check()
        await yard.plant.succeed(await yard.plant.live_attempts())
    assert len(await yard.attempts()) == 3
