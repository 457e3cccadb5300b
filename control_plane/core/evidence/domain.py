"""The ladder of an execution, built from facts that are read; pure.

Hops are numbered as in the journey of an order: 1 and 10 belong to the business gateway,
2 to 9 are known here. The first hop whose fact is missing is where the work stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

TERMINAL: Final = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED"})
DISTURBANCES_MAX: Final = 100


class RungState(StrEnum):
    """Whether a rung of the ladder is there."""

    DURABLE = "DURABLE"
    CURRENT = "CURRENT"
    AHEAD = "AHEAD"
    NOT_APPLICABLE = "NOT_APPLICABLE"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What went wrong at a rung, and what was done about it."""

    kind: str
    description: str
    occurred_at: datetime | None


@dataclass(frozen=True, slots=True)
class Rung:
    """One hop's durable fact, or its absence."""

    hop: int
    title: str
    state: RungState
    store: str
    location: str
    identity: str = ""
    record: str = ""
    durable_at: datetime | None = None
    actor: str = ""
    summary: str = ""
    disturbances: tuple[Disturbance, ...] = ()


@dataclass(frozen=True, slots=True)
class HopFact:
    """What was read about one hop: how many rows there are, how many are done, and the newest.

    `expected_count` is how many there must be for the hop to be complete, as far as is known;
    `open_reason` says what an unfinished row waits for.
    """

    hop: int
    identity: str = ""
    record: str = ""
    actor: str = ""
    durable_at: datetime | None = None
    done_count: int = 0
    expected_count: int = 0
    applicable: bool = True
    open_reason: str = ""
    disturbances: tuple[Disturbance, ...] = ()


@dataclass(frozen=True, slots=True)
class LadderFacts:
    """All that is known here of one execution."""

    task_id: str
    execution_id: str
    external_ref: str
    status: str
    failure: str
    waiting_for: str
    hops: Sequence[HopFact]


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs in order, and one sentence: stuck or not, whose move, is the data safe."""

    task_id: str
    execution_id: str
    rungs: tuple[Rung, ...]
    verdict: str


@dataclass(frozen=True, slots=True)
class _Hop:
    title: str
    store: str
    location: str
    done: str
    mover: str


_CONTROL: Final = "control plane PostgreSQL"
_HOPS: Final = {
    2: _Hop("Task accepted", _CONTROL, "tasks, executions", "task and execution stored", "gateway"),
    3: _Hop("Wake-up published", _CONTROL, "outbox_events", "published to JetStream", "outbox"),
    4: _Hop("Steps expanded", _CONTROL, "steps, scheduling_requests", "steps stored", "engine"),
    5: _Hop("Dispatched", _CONTROL, "attempts, node_commands", "attempts stored", "scheduler"),
    6: _Hop("Received by the node", "node agent journal", "inbox", "commands stored", "node"),
    7: _Hop(
        "Capability ran", "node agent journal, S3", "attempts, outbox", "attempts ended", "node"
    ),
    8: _Hop("Result accepted", _CONTROL, "attempt_inbox", "results stored", "control plane"),
    9: _Hop("Callbacks delivered", _CONTROL, "callback_deliveries", "delivered", "callback pump"),
}


def build_ladder(facts: LadderFacts) -> Ladder:
    """Return the rungs in order of their hops; the first incomplete one is CURRENT."""
    rungs: list[Rung] = []
    standing: Rung | None = None
    for fact in sorted(facts.hops, key=lambda one: one.hop):
        rung = _rung(fact, facts)
        if rung.state is RungState.CURRENT:
            if standing is None:
                standing = rung
            elif fact.done_count == 0:
                rung = replace(rung, state=RungState.AHEAD)
        rungs.append(rung)
    return Ladder(facts.task_id, facts.execution_id, tuple(rungs), _verdict(facts, standing))


def _rung(fact: HopFact, facts: LadderFacts) -> Rung:
    hop = _HOPS[fact.hop]
    return Rung(
        hop=fact.hop,
        title=hop.title,
        state=_state(fact, facts),
        store=hop.store,
        location=hop.location,
        identity=fact.identity,
        record=fact.record,
        durable_at=fact.durable_at,
        actor=fact.actor or hop.mover,
        summary=_summary(fact, hop),
        disturbances=fact.disturbances[-DISTURBANCES_MAX:],
    )


def _state(fact: HopFact, facts: LadderFacts) -> RungState:
    if not fact.applicable:
        return RungState.NOT_APPLICABLE
    complete = fact.done_count > 0 and fact.done_count >= fact.expected_count
    over_without = facts.status in TERMINAL and fact.expected_count == 0
    if complete:
        return RungState.DURABLE
    return RungState.NOT_APPLICABLE if over_without else RungState.CURRENT


def _summary(fact: HopFact, hop: _Hop) -> str:
    if not fact.applicable:
        return "not needed for this task"
    count = f"{fact.done_count} of {max(fact.expected_count, fact.done_count)} {hop.done}"
    return f"{count}; {fact.open_reason}" if fact.open_reason else count


def _verdict(facts: LadderFacts, standing: Rung | None) -> str:
    if facts.status in TERMINAL:
        told = "" if standing is None else f"; {standing.title.lower()} is still to come"
        why = f" ({facts.failure})" if facts.failure else ""
        return f"Finished as {facts.status}{why}{told}. Every fact so far is durable."
    if facts.waiting_for:
        return f"Not lost: {facts.waiting_for} Every fact so far is durable."
    whose = "engine" if standing is None else standing.actor
    return f"Under way ({facts.status}); the next move is the {whose}'s. Nothing is lost."
