"""Which results the ladder still waits for, when some were refused or never came."""

from control_plane.adapters.outbound.postgres.evidence_reader import PostgresEvidenceReader
from control_plane.core.evidence.domain import HopFact
from control_plane.core.nodes.domain import WorkSucceeded
from tests.integration.control_plane.nodes.world import Attempt, World, event, success


async def test_a_refused_result_that_ended_its_attempt_is_not_waited_for(world: World) -> None:
    """A success that names other artifacts than were reported ends its attempt: it was heard."""
    attempt = await world.new_attempt(await world.add_node())
    assert await _counts(world, attempt) == (0, 1)
    await world.accept([event(attempt, WorkSucceeded("{}", artifact_count=1, collection_ref="c"))])
    assert await _counts(world, attempt) == (1, 1)
    fenced = (await _hop(world, attempt)).disturbances
    assert [one.kind for one in fenced] == ["fenced"]


async def test_an_attempt_that_ended_in_silence_is_not_waited_for(world: World) -> None:
    """Cancelled by its lease's end, it has no report, and none will come."""
    attempt = await world.new_attempt(await world.add_node())
    await world.database.fetch("update attempts set status = 'CANCELED', lease_expires_at = null")
    assert await _counts(world, attempt) == (0, 0)


async def test_a_report_of_another_lease_is_no_result(world: World) -> None:
    """A fenced event of a live attempt leaves the attempt's own result to come."""
    attempt = await world.new_attempt(await world.add_node())
    await world.accept([success(attempt, lease_version=attempt.lease_version + 1)])
    assert await _counts(world, attempt) == (0, 1)


async def _counts(world: World, attempt: Attempt) -> tuple[int, int]:
    hop = await _hop(world, attempt)
    return hop.done_count, hop.expected_count


async def _hop(world: World, attempt: Attempt) -> HopFact:
    facts = await PostgresEvidenceReader(world.database).facts(attempt.execution_id)
    (hop,) = [one for one in facts.hops if one.hop == 8]
    return hop
