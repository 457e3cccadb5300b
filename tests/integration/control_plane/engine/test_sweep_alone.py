"""The sweep alone, with every hint and message lost, drives executions to their ends."""

import json

import pytest

from foundation.postgres.pool import Database
from tests.integration.control_plane.engine.plant import Plant, Planted, step, workflow

_ROUNDS_MAX = 40


@pytest.fixture
def plant(control_database: Database) -> Plant:
    return Plant(control_database)


async def _swept(plant: Plant) -> int:
    """Lose every hint, let the sweep look at once, and advance what it found; how many."""
    plant.hints.engine.take(10_000)
    await plant.driver.sweep(0.0)
    found = plant.hints.engine.take(10_000)
    await plant.driver.advance(found)
    return len(found)


async def _let_time_pass(plant: Plant) -> None:
    """Let the time pass that a new execution leaves its wake-up."""
    await plant.database.fetch(
        "update executions set next_due_at = next_due_at - interval '3 seconds'"
        " where status = 'CREATED'"
    )


async def _drive(plant: Plant, planted: list[Planted]) -> int:
    """Let nodes work and only the sweep look, until all is over; answer the advances."""
    await _let_time_pass(plant)
    advances = 0
    for _ in range(_ROUNDS_MAX):
        advances += await _swept(plant)
        attempts = [one for each in planted for one in await plant.dispatch(each)]
        if attempts:
            await plant.succeed(attempts, {"n": 1})
            continue
        rows = [await plant.execution(one) for one in planted]
        if all(row["completed_at"] is not None for row in rows):
            return advances
    raise AssertionError("not over")


async def test_the_sweep_alone_reaches_the_end(plant: Plant) -> None:
    """Parallel steps, items and skips on several executions, without one hint or message."""
    definition = workflow(
        step("a"),
        step("b", "a", for_each="[1, 2, 3]", max_parallel=2, input={"item": "${item}"}),
        step("c", "a", when="false"),
        step("d", "b", "c", input={"all": "${steps.b.output}"}),
        output={"last": "${steps.d.output}"},
    )
    planted = await plant.create(definition, count=5)

    await _drive(plant, planted)

    for one in planted:
        row = await plant.execution(one)
        assert row["status"] == "SUCCEEDED"
        assert json.loads(row["output"]) == {"last": {"n": 1}}
        assert row["next_due_at"] is None
        sequences = [sequence for sequence, _, _ in await plant.events(one)]
        assert sequences == list(range(1, len(sequences) + 1))
    assert await _swept(plant) == 0


async def test_a_chain_of_a_thousand_steps_costs_an_advance_for_each_outcome(
    plant: Plant,
) -> None:
    """Three steps run and 997 are skipped: four advances, however long the chain is."""
    steps = [step("s0")]
    for number in range(1, 1_000):
        skipped = {} if number < 3 else {"when": "false"}
        steps.append(step(f"s{number}", f"s{number - 1}", **skipped))
    (one,) = await plant.create(workflow(*steps))

    advances = await _drive(plant, [one])

    assert advances == 4
    statuses = await plant.statuses(one)
    assert list(statuses.values()) == ["SUCCEEDED"] * 3 + ["SKIPPED"] * 997
    assert (await plant.execution(one))["status"] == "SUCCEEDED"
