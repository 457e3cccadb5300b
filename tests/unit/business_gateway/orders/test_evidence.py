"""The ladder of an order, from facts."""

from datetime import UTC, datetime
from typing import Any

import pytest

from business_gateway.core.orders.evidence import (
    CommandFact,
    GatewayFacts,
    InboxFacts,
    PlatformEvidence,
    Rung,
    RungState,
    build_order_ladder,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DONE, AHEAD = RungState.DURABLE, RungState.AHEAD


def facts(**changes: Any) -> GatewayFacts:
    known: dict[str, Any] = {
        "order_id": "o",
        "status": "PROCESSING",
        "is_final": False,
        "created_at": NOW,
        "updated_at": NOW,
        "version": 3,
        "task_id": "t",
        "execution_id": "e",
        "run": 1,
        "last_contiguous_sequence": 2,
        "last_projected_sequence": 2,
        "commands": (CommandFact("c", "SUBMIT", "PUBLISHED", 0, NOW, NOW, ""),),
        "inbox": InboxFacts(),
    }
    return GatewayFacts(**{**known, **changes})


def platform(done_hops: int, verdict: str = "Under way there.") -> PlatformEvidence:
    return PlatformEvidence(
        tuple(
            Rung(hop, "T", DONE if hop <= done_hops else AHEAD, "S", "L") for hop in range(2, 10)
        ),
        verdict,
    )


@pytest.mark.parametrize("done_hops", range(1, 10))
def test_the_first_missing_rung_is_where_the_work_stands(done_hops: int) -> None:
    """Always ten rungs in order, exactly one of them current while the order is under way."""
    ladder = build_order_ladder(facts(), platform(done_hops))
    assert [one.hop for one in ladder.rungs] == list(range(1, 11))
    states = [one.state for one in ladder.rungs]
    assert states.count(RungState.CURRENT) == 1
    assert states.index(RungState.CURRENT) == done_hops
    assert ladder.platform_reached


def test_a_finished_order_stands_nowhere() -> None:
    """All rungs are durable, and the verdict says that it is finished."""
    ladder = build_order_ladder(facts(status="COMPLETED", is_final=True), platform(9))
    assert {one.state for one in ladder.rungs} == {DONE}
    assert ladder.verdict.startswith("Finished: the order is COMPLETED")


def test_a_command_given_up_is_what_it_is_stuck_at() -> None:
    """A DEAD command is named as a disturbance of the first rung, and in the verdict."""
    dead = CommandFact("c", "SUBMIT", "DEAD", 1, NOW, None, "INVALID_ARGUMENT: no such workflow")
    ladder = build_order_ladder(facts(commands=(dead,), task_id=None), None)
    assert ladder.rungs[0].disturbances[0].kind == "dead"
    assert ladder.verdict.startswith("Stuck: SUBMIT was given up (INVALID_ARGUMENT")


def test_what_happened_to_events_is_shown() -> None:
    """Repeats, fetched, late and missing events each appear as a disturbance of the last rung."""
    inbox = InboxFacts(9, 2, 1, 3, "e9", NOW)
    ladder = build_order_ladder(
        facts(inbox=inbox, last_projected_sequence=5, last_contiguous_sequence=3), platform(9)
    )
    kinds = [one.kind for one in ladder.rungs[9].disturbances]
    assert kinds == ["deduplicated", "replayed", "fenced", "retried"]
    assert ladder.rungs[9].record == "e9"


def test_a_silent_platform_is_unknown_and_its_answer_is_kept() -> None:
    """Its rungs are unknown, but for the ids that the gateway has from it."""
    ladder = build_order_ladder(facts(), None, "UNAVAILABLE: away")
    assert [one.state for one in ladder.rungs[1:3]] == [DONE, RungState.UNKNOWN]
    assert ladder.rungs[1].identity == "task t, execution e"
    assert not ladder.platform_reached
    assert "away" in ladder.verdict


def test_an_order_withdrawn_says_that_nothing_was_sent() -> None:
    """Without any command the first rung tells why."""
    withdrawn = facts(commands=(), status="CANCELED", is_final=True, task_id=None)
    ladder = build_order_ladder(withdrawn, None)
    assert "withdrawn before submission" in ladder.rungs[0].summary
