"""Limits by key on a real PostgreSQL: slots of attempts and executions, waited for and freed."""

import asyncio
import json
from typing import Any

import pytest

from control_plane.adapters.outbound.postgres.limit_store import sweep_limits
from control_plane.core.executions.outcomes import expired, success_pending
from foundation.postgres.pool import Connection, Database
from tests.integration.control_plane.engine.plant import Planted, step, workflow
from tests.integration.control_plane.scheduling.yard import NodeSpec, Yard

KEYED = workflow(
    step("only", concurrency_key={"key": "${ input.c }", "max": 2}, retry={"max_attempts": 1})
)
GATED = workflow(step("only"), concurrency_key={"key": "${ input.c }", "max": 2})


@pytest.fixture
def yard(control_database: Database) -> Yard:
    return Yard(control_database)


async def _planted(yard: Yard, definition: str, *keys: str, **fields: Any) -> list[Planted]:
    planted = [
        one
        for key in keys
        for one in await yard.plant.create(definition, input_document={"c": key}, **fields)
    ]
    await yard.plant.advance(planted)
    return planted


async def _serve(yard: Yard) -> None:
    """Schedule until nothing more is due at once, and advance what is hinted."""
    hints = yard.plant.hints
    hints.requests_ready()
    while hints.scheduler.pending:
        await hints.scheduler.wait(0.0)
        while await yard.scheduler.run_once() == 0.0:
            pass
        await yard.plant.advance_all()


async def _slots(yard: Yard) -> list[tuple[str, str]]:
    rows = await yard.database.fetch(
        "select limit_key, holder_id::text from limit_slots order by 1, 2"
    )
    return [(row["limit_key"].rsplit("/", 1)[-1], row["holder_id"]) for row in rows]


async def test_attempts_of_a_key_wait_for_a_slot_and_get_it_when_one_ends(yard: Yard) -> None:
    """Two of four run, other keys are not in their way; each end lets the next one start."""
    await yard.add_node(NodeSpec(slots=9))
    planted = await _planted(yard, KEYED, "x", "x", "x", "x", "y")
    await _serve(yard)
    assert len(await yard.plant.live_attempts()) == 3
    waiting = [row for row in await yard.requests() if row["status"] == "PENDING"]
    assert [row["waits_for"].rsplit("/", 1)[-1] for row in waiting] == ["x", "x"]
    assert "Key 'x' of step only is in use, 2 of 2 slots are taken" in waiting[0]["reasons"]
    shown = await yard.database.fetchrow(
        "select waiting_for from shown_executions where execution_id = $1",
        waiting[0]["execution_id"],
    )
    assert shown is not None
    assert shown["waiting_for"].startswith("Step only waits since ")

    for expected in (3, 2, 1):
        await yard.plant.succeed((await yard.plant.live_attempts())[:1])
        await _serve(yard)
        live = await yard.plant.live_attempts()
        assert len(live) >= expected
        assert len(await _slots(yard)) == len(live)
        await yard.check()
    while live := await yard.plant.live_attempts():
        await yard.plant.succeed(live)
        await _serve(yard)
    assert await _slots(yard) == []
    for one in planted:
        assert (await yard.plant.execution(one))["status"] == "SUCCEEDED"


async def test_every_end_of_an_attempt_frees_its_slot(yard: Yard) -> None:
    """Failure, a lost lease and a result that waits for its artifacts; never a decision alone."""
    await yard.add_node(NodeSpec(slots=9))
    await _planted(yard, KEYED, "x", "x", "x")
    await _serve(yard)
    first, second = await yard.plant.live_attempts()
    await yard.plant.fail([first])
    await _serve(yard)
    assert {holder for _, holder in await _slots(yard)} == set(await yard.plant.live_attempts())
    assert len(await _slots(yard)) == 2

    await yard.plant.end_attempts({second: expired(None)})
    assert second not in {holder for _, holder in await _slots(yard)}

    async def pend(connection: Connection) -> None:
        locked = await yard.plant.outcomes.lock(connection, await yard.plant.live_attempts())
        endings = [(one, success_pending(one, "{}", "c", 1)) for one in locked.facts.values()]
        await yard.plant.outcomes.end(connection, endings, locked.now)

    await yard.database.run_transaction(pend)
    assert await _slots(yard) == []


async def test_a_cancel_frees_a_slot_only_with_the_report(yard: Yard) -> None:
    """The node may still be at it: until it says so, nobody else starts on the key."""
    await yard.add_node(NodeSpec(slots=9))
    one, _, waiting = await _planted(yard, KEYED, "x", "x", "x")
    await _serve(yard)
    await yard.database.fetch("update node_commands set status = 'SENT', sent_at = tdp_now()")
    await yard.database.fetch(
        "update executions set status = 'CANCELING', next_due_at = tdp_now()"
        " where execution_id = $1",
        one.execution_id,
    )
    await yard.plant.advance([one])
    await _serve(yard)
    assert await yard.plant.requests(waiting) == [("only", 1, "PENDING")]

    rows = await yard.database.fetch(
        "select attempt_id::text from attempts where execution_id = $1", one.execution_id
    )
    await yard.plant.end_attempts({rows[0]["attempt_id"]: expired(None)})
    await _serve(yard)
    assert await yard.plant.requests(waiting) == [("only", 1, "DISPATCHED")]


async def test_executions_enter_as_others_of_their_key_end(yard: Yard) -> None:
    """Those over the limit stay CREATED, say why, and begin by themselves; the urgent first."""
    await yard.add_node(NodeSpec(slots=9))
    first = await _planted(yard, GATED, "x", "x", "x", "y")
    urgent = await _planted(yard, GATED, "x", priority=50)
    held = [one for one in (*first, *urgent) if not await yard.plant.statuses(one)]
    assert held == [first[2], *urgent]
    shown = await yard.database.fetchrow(
        "select waiting_for from shown_executions where execution_id = $1", held[0].execution_id
    )
    assert shown is not None
    assert "Key 'x' of workflow w is in use, 2 of 2 slots are taken" in shown["waiting_for"]

    await _serve(yard)
    (running,) = [
        row["attempt_id"]
        for row in await yard.database.fetch(
            "select attempt_id::text from attempts where execution_id = $1", first[0].execution_id
        )
    ]
    await yard.plant.succeed([running])
    await _serve(yard)
    assert (await yard.plant.execution(urgent[0]))["status"] == "RUNNING"
    assert (await yard.plant.execution(first[2]))["status"] == "CREATED"

    while live := await yard.plant.live_attempts():
        await yard.plant.succeed(live)
        await _serve(yard)
    assert await yard.plant.unfinished() == 0
    assert await _slots(yard) == []


async def test_a_held_execution_can_be_cancelled_and_times_out(yard: Yard) -> None:
    """It holds nothing, so its end frees nothing, and the next one still enters in turn."""
    await yard.add_node(NodeSpec(slots=9))
    *_, doomed, patient = await _planted(yard, GATED, "x", "x", "x", "x")
    await yard.database.fetch(
        "update executions set deadline_at = tdp_now() where execution_id = $1",
        doomed.execution_id,
    )
    await yard.plant.advance([doomed])
    assert (await yard.plant.execution(doomed))["status"] == "TIMED_OUT"
    await _serve(yard)
    await yard.plant.succeed((await yard.plant.live_attempts())[:1])
    await _serve(yard)
    assert (await yard.plant.execution(patient))["status"] == "RUNNING"


async def test_a_rate_gives_turns_by_the_clock(yard: Yard) -> None:
    """One start in a long time: the second waits for its turn, due exactly then; ends free none."""
    await yard.add_node(NodeSpec(slots=9))
    definition = workflow(step("only", rate_limit={"max": 1, "per": "1h"}))
    planted = await _planted(yard, definition, "x", "x", "x")
    await _serve(yard)
    await yard.plant.succeed(await yard.plant.live_attempts())
    await _serve(yard)
    waits = await yard.database.fetch(
        "select extract(epoch from available_at - tdp_now())::float8 as wait_s"
        " from scheduling_requests where status = 'PENDING' order by 1"
    )
    assert [round(row["wait_s"] / 3600) for row in waits] == [1, 2]

    await yard.database.fetch("update limit_slots set expires_at = tdp_now()")
    (await sweep_limits(yard.database)).give(yard.plant.hints)
    await _serve(yard)
    statuses = [(await yard.plant.execution(one))["status"] for one in planted]
    assert sorted(statuses) == ["QUEUED", "RUNNING", "SUCCEEDED"]


async def test_a_lost_wake_up_is_found_by_the_sweep(yard: Yard) -> None:
    """A slot that came free without anybody being told is given out all the same."""
    await yard.add_node(NodeSpec(slots=9))
    await _planted(yard, KEYED, "x", "x", "x")
    await _serve(yard)
    await yard.database.fetch("delete from limit_slots")
    later = yard.new_scheduler(yard.new_store())
    await later.run_once()
    await later.run_once()
    assert len(await yard.plant.live_attempts()) == 3


async def test_a_key_without_a_value_fails_its_step(yard: Yard) -> None:
    """At once, with the expression, and without a request."""
    (one,) = await _planted(yard, workflow(step("only", concurrency_key="${ input.gone }")), "x")
    row = await yard.plant.execution(one)
    assert row["status"] == "FAILED"
    assert "input.gone" in json.loads(row["failure"])["cause"]["message"] + row["failure"]
    assert await yard.plant.requests(one) == []


async def test_rivals_never_exceed_a_limit(yard: Yard) -> None:
    """Three schedulers and ends all the while: at no commit more holders than slots, no leak."""
    await yard.add_node(NodeSpec(slots=20))
    planted = await _planted(yard, KEYED, *(["x"] * 12), *(["y"] * 8))
    rivals = [yard.scheduler, *(yard.new_scheduler(yard.new_store()) for _ in range(2))]

    async def ends() -> None:
        for _ in range(200):
            if not await yard.plant.unfinished():
                return
            live = await yard.plant.live_attempts()
            await yard.plant.succeed(live[:3])
            await yard.plant.advance_all()
            await asyncio.gather(*(one.run_once() for one in rivals))
            crowded = await yard.database.fetch(
                "select limit_key from limit_slots group by limit_key having count(*) > 2"
            )
            assert not crowded

    await asyncio.gather(*(one.run_once() for one in rivals))
    await ends()
    for one in planted:
        assert (await yard.plant.execution(one))["status"] == "SUCCEEDED"
    assert await _slots(yard) == []
    await yard.check()
