"""The ladder: where the work stands, from what is durable."""

from dataclasses import replace

from control_plane.core.evidence.domain import (
    Disturbance,
    HopFact,
    LadderFacts,
    RungState,
    build_ladder,
)

_DONE = tuple(HopFact(hop, done_count=1, expected_count=1) for hop in range(2, 10))


def _facts(*hops: HopFact, status: str = "RUNNING", waiting_for: str = "") -> LadderFacts:
    return LadderFacts("t", "e", "order-1", status, "", waiting_for, hops)


def test_a_finished_execution_has_every_rung() -> None:
    """All facts durable: no rung is current and the verdict says so."""
    ladder = build_ladder(_facts(*_DONE, status="SUCCEEDED"))
    assert [rung.hop for rung in ladder.rungs] == list(range(2, 10))
    assert {rung.state for rung in ladder.rungs} == {RungState.DURABLE}
    assert "Finished as SUCCEEDED" in ladder.verdict


def test_the_first_missing_fact_is_where_it_stands() -> None:
    """The first incomplete hop is CURRENT, empty ones after it are AHEAD."""
    hops = _DONE[:3] + tuple(replace(one, done_count=0, expected_count=0) for one in _DONE[3:])
    ladder = build_ladder(_facts(*hops))
    states = [rung.state for rung in ladder.rungs]
    assert states[:4] == [RungState.DURABLE] * 3 + [RungState.CURRENT]
    assert set(states[4:]) == {RungState.AHEAD}
    assert "scheduler" in ladder.verdict


def test_a_wait_is_told_in_its_own_words() -> None:
    """What the execution waits for is the verdict."""
    ladder = build_ladder(_facts(*_DONE, waiting_for="Step a waits for a node."))
    assert "Step a waits for a node." in ladder.verdict


def test_hops_that_are_not_needed_are_said_to_be_so() -> None:
    """Without an endpoint there is no callback rung, and nothing waits for one."""
    quiet = replace(_DONE[-1], done_count=0, expected_count=0, applicable=False)
    ladder = build_ladder(_facts(*_DONE[:-1], quiet, status="SUCCEEDED"))
    assert ladder.rungs[-1].state is RungState.NOT_APPLICABLE


def test_disturbances_are_bounded_to_the_newest() -> None:
    """A rung shows at most a hundred disturbances."""
    many = tuple(Disturbance("retried", str(number), None) for number in range(150))
    ladder = build_ladder(_facts(replace(_DONE[0], disturbances=many)))
    assert len(ladder.rungs[0].disturbances) == 100
    assert ladder.rungs[0].disturbances[-1].description == "149"
