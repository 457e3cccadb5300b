"""Who is served first where not all can be: by priority, and in turns between applications."""

import pytest

from foundation.postgres.pool import Database
from tests.integration.control_plane.engine.plant import IDS
from tests.integration.control_plane.scheduling.yard import NodeSpec, Yard


@pytest.fixture
def yard(control_database: Database) -> Yard:
    return Yard(control_database)


async def test_urgent_requests_are_served_first(yard: Yard) -> None:
    """Of many that were parked, those of the highest priority get the slots that come free."""
    planted = [
        (await yard.plant.create(priority=priority))[0] for priority in (-50, 80, 0, 100, 20)
    ]
    await yard.plant.advance(planted)
    await yard.scheduler.run_once()
    await yard.add_node(NodeSpec(slots=2))

    await yard.scheduler.run_once()

    served = {str(row["execution_id"]) for row in await yard.attempts()}
    assert served == {planted[3].execution_id, planted[1].execution_id}


async def test_applications_share_the_slots(yard: Yard) -> None:
    """One application's backlog does not keep another from its share of four slots."""
    other = IDS.new_id()
    many = await yard.plant.create(count=20)
    few = await yard.plant.create(count=5, application_id=other)
    await yard.plant.advance([*many, *few])
    await yard.add_node(NodeSpec(slots=4))

    await yard.scheduler.run_once()

    served = [str(row["application_id"]) for row in await yard.attempts()]
    assert served.count(other) == 2


async def test_a_parked_backlog_leaves_what_comes_free_to_others(yard: Yard) -> None:
    """Who runs less gets the next slot, however many of another application waited before."""
    other = IDS.new_id()
    await yard.add_node(NodeSpec(slots=2))
    await yard.plant.advance(await yard.plant.create(count=20))
    await yard.scheduler.run_once()
    await yard.plant.advance(await yard.plant.create(count=3, application_id=other))
    await yard.scheduler.run_once()
    parked = await yard.database.fetch("select xmin::text from scheduling_requests")

    await yard.plant.succeed((await yard.plant.live_attempts())[:1])
    await yard.scheduler.run_once()

    assert str((await yard.attempts())[-1]["application_id"]) == other
    # What was looked at in vain was not written again.
    now = await yard.database.fetch("select xmin::text from scheduling_requests")
    assert len({row["xmin"] for row in now} - {row["xmin"] for row in parked}) == 1
    await yard.check()
