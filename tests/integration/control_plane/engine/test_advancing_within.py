"""Reports that are accepted and advanced in one transaction: what it does, and what it leaves."""

from functools import partial

import pytest

from control_plane.adapters.outbound.postgres.capability_schemas import CapabilitySchemas
from control_plane.adapters.outbound.postgres.inbox_store import PostgresInboxStore
from control_plane.core.engine.deciding import Deciding
from control_plane.core.engine.ports import Advance, Advancing, LoadedExecution
from control_plane.core.executions.failures import Failure
from control_plane.core.nodes.domain import Fact, NodeEvent, WorkFailed, WorkSucceeded
from control_plane.core.nodes.ports import Accepted
from foundation.postgres.pool import Database
from tests.integration.control_plane.engine.plant import IDS, Plant, step, workflow

_DONE = WorkSucceeded('{"n":2}', 0, "")


@pytest.fixture
def plant(control_database: Database) -> Plant:
    return Plant(control_database)


async def _accept(
    plant: Plant, facts: dict[str, Fact], deciding: Advancing | None = None
) -> Accepted:
    """Report facts of attempts as their nodes would."""
    advancing = deciding or Deciding(IDS)
    inbox = PostgresInboxStore(
        plant.database,
        plant.outcomes,
        CapabilitySchemas(plant.database),
        partial(plant.store.advance_within, advancing=advancing),
    )
    rows = await plant.database.fetch(
        "select attempt_id::text, node_id::text, lease_version from attempts"
        " where attempt_id = any($1::uuid[])",
        list(facts),
    )
    return await inbox.accept(
        [
            NodeEvent(
                event_id=IDS.new_id(),
                node_id=row["node_id"],
                attempt_id=row["attempt_id"],
                lease_version=row["lease_version"],
                incarnation_id=IDS.new_id(),
                boot_id=IDS.new_id(),
                fact=facts[row["attempt_id"]],
            )
            for row in rows
        ]
    )


async def test_a_report_is_advanced_in_its_own_transaction(plant: Plant) -> None:
    """The next step is asked for when the report is acknowledged, without the driver."""
    (one,) = await plant.create()
    await plant.advance([one])
    (attempt,) = await plant.dispatch(one)

    accepted = await _accept(plant, {attempt: _DONE})

    assert [fate.accepted for fate in accepted.fates] == [True]
    assert await plant.statuses(one) == {"first": "SUCCEEDED", "second": "READY"}
    assert ("second", 1, "PENDING") in await plant.requests(one)
    assert accepted.aftermath.execution_ids == frozenset()
    assert accepted.advanced.asks_for_nodes
    assert set(accepted.advanced.sequences) == {one.execution_id}
    execution = await plant.execution(one)
    assert execution["next_due_at"] == execution["deadline_at"]


async def test_the_driver_takes_note_of_what_the_inbox_advanced(plant: Plant) -> None:
    """Messages of such an execution cost no query, and whoever waits for nodes is woken."""
    (one,) = await plant.create()
    await plant.advance([one])
    (attempt,) = await plant.dispatch(one)
    settled: dict[str, int] = {}
    plant.driver.on_settled(settled.update)

    accepted = await _accept(plant, {attempt: _DONE})
    plant.driver.advanced_elsewhere(accepted.advanced)

    sequence = accepted.advanced.sequences[one.execution_id]
    assert settled == {one.execution_id: sequence}
    assert plant.driver.covers(one.execution_id, sequence)
    assert plant.hints.scheduler.pending


async def test_a_decision_that_fails_does_not_take_the_report_with_it(plant: Plant) -> None:
    """The report is kept, the failure is stored, and the other execution goes on."""
    bad, good = await plant.create(count=2)
    await plant.advance([bad, good])
    attempts = {one.execution_id: (await plant.dispatch(one))[0] for one in (bad, good)}
    deciding = Deciding(IDS)

    def failing(execution: LoadedExecution) -> Advance:
        if execution.facts.execution_id == bad.execution_id:
            raise ValueError("cannot be decided")
        return deciding(execution)

    accepted = await _accept(plant, dict.fromkeys(attempts.values(), _DONE), failing)

    assert [fate.accepted for fate in accepted.fates] == [True, True]
    assert accepted.aftermath.execution_ids == {bad.execution_id}
    assert await plant.statuses(bad) == {"first": "SUCCEEDED", "second": "PENDING"}
    assert await plant.statuses(good) == {"first": "SUCCEEDED", "second": "READY"}
    assert "cannot be decided" in (await plant.execution(bad))["advance_error"]


async def test_an_advance_that_the_database_refuses_leaves_the_report(plant: Plant) -> None:
    """All that the batch's advance wrote is undone, and all of it is due for the driver."""
    (one,) = await plant.create()
    await plant.advance([one])
    (attempt,) = await plant.dispatch(one)

    await plant.database.fetch(
        "create function refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'refused' using errcode = '23514'; end $$"
    )
    await plant.database.fetch(
        "create trigger refuse before insert on scheduling_requests"
        " for each row execute function refuse()"
    )
    accepted = await _accept(plant, {attempt: _DONE})

    assert [fate.accepted for fate in accepted.fates] == [True]
    assert accepted.aftermath.execution_ids == {one.execution_id}
    assert await plant.statuses(one) == {"first": "SUCCEEDED", "second": "PENDING"}
    assert (await plant.store.due(10)).execution_ids == [one.execution_id]

    await plant.database.fetch("drop trigger refuse on scheduling_requests")
    accepted.aftermath.give(plant.hints)
    await plant.advance_all()
    assert await plant.statuses(one) == {"first": "SUCCEEDED", "second": "READY"}


async def test_what_stops_attempts_is_left_to_the_driver(plant: Plant) -> None:
    """The inbox holds nodes' locks, which are the last: no attempt is locked after them."""
    (one,) = await plant.create(workflow(step("left"), step("right")))
    await plant.advance([one])
    left, _ = await plant.dispatch(one)
    broken = WorkFailed(Failure("BROKEN", "it broke", retryable=False))

    accepted = await _accept(plant, {left: broken})

    assert accepted.aftermath.execution_ids == {one.execution_id}
    assert accepted.advanced.sequences == {}
    assert (await plant.execution(one))["closing_as"] is None
    accepted.aftermath.give(plant.hints)
    await plant.advance_all()
    assert (await plant.execution(one))["closing_as"] == "FAILED"
