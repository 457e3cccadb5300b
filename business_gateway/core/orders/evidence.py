"""The ladder of an order: the gateway's own rungs around those of the platform; pure.

Hops are numbered as in the journey of an order. 1 and 10 are the gateway's; of 2 to 9 it knows
what it sent and what it received, and shows that where the platform cannot be asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

_FIRST, _SUBMITTED, _DELIVERED, _LAST = 1, 2, 9, 10
_STORE: Final = "gateway PostgreSQL"
_PLATFORM_STORE: Final = "control plane PostgreSQL"
_PLATFORM_TITLES: Final[Mapping[int, str]] = {
    2: "Task accepted",
    3: "Wake-up published",
    4: "Steps expanded",
    5: "Dispatched",
    6: "Received by the node",
    7: "Capability ran",
    8: "Result accepted",
    9: "Callbacks delivered",
}


class RungState(StrEnum):
    """Whether a rung is there."""

    DURABLE = "DURABLE"
    CURRENT = "CURRENT"
    AHEAD = "AHEAD"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What went wrong at a rung, and what was done about it."""

    kind: str
    description: str
    occurred_at: datetime | None = None


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
class PlatformEvidence:
    """The platform's rungs, ascending, and its verdict in one sentence."""

    rungs: tuple[Rung, ...]
    verdict: str


@dataclass(frozen=True, slots=True)
class CommandFact:
    """One row of the command outbox."""

    command_id: str
    kind: str
    status: str
    attempts: int
    created_at: datetime
    published_at: datetime | None
    last_error: str


@dataclass(frozen=True, slots=True)
class InboxFacts:
    """What the callback inbox holds for an order."""

    event_count: int = 0
    queried_count: int = 0
    repeated_count: int = 0
    history_count: int = 0
    last_event_id: str = ""
    last_received_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class GatewayFacts:
    """All that the gateway's own database proves of an order."""

    order_id: str
    status: str
    is_final: bool
    created_at: datetime
    updated_at: datetime
    version: int
    task_id: str | None
    execution_id: str | None
    run: int
    last_contiguous_sequence: int
    last_projected_sequence: int
    commands: Sequence[CommandFact]
    inbox: InboxFacts


@dataclass(frozen=True, slots=True)
class OrderLadder:
    """Ten rungs, and one sentence: stuck or not, whose move it is, whether the data is safe."""

    order_id: str
    rungs: tuple[Rung, ...]
    verdict: str
    platform_reached: bool


def build_order_ladder(
    facts: GatewayFacts, platform: PlatformEvidence | None, problem: str = ""
) -> OrderLadder:
    """Merge the rungs. `problem` says why the platform could not be asked, empty if it was."""
    own = (_order_rung(facts), _projection_rung(facts))
    between = _platform_rungs(facts, platform, problem)
    rungs = _standing((own[0], *between, own[1]), facts)
    return OrderLadder(
        facts.order_id, rungs, _verdict(facts, rungs, platform, problem), not problem
    )


def _order_rung(facts: GatewayFacts) -> Rung:
    submit = next((one for one in facts.commands if one.kind == "SUBMIT"), None)
    command = "no command: withdrawn before submission"
    if submit is not None:
        command = f"command {submit.command_id} {submit.status}"
    return Rung(
        hop=_FIRST,
        title="Order accepted",
        state=RungState.DURABLE,
        store=_STORE,
        location="orders, command_outbox",
        identity=f"order {facts.order_id}",
        record=facts.order_id,
        durable_at=facts.created_at,
        actor="gateway",
        summary=f"the order and its command were stored in one transaction; {command}",
        disturbances=tuple(_command_disturbance(one) for one in facts.commands if one.last_error),
    )


def _command_disturbance(command: CommandFact) -> Disturbance:
    kind = "dead" if command.status in {"DEAD", "QUARANTINED"} else "retried"
    said = f"{command.kind} is {command.status} after {command.attempts} failed attempts"
    return Disturbance(kind, f"{said}: {command.last_error}", command.created_at)


def _projection_rung(facts: GatewayFacts) -> Rung:
    inbox = facts.inbox
    return Rung(
        hop=_LAST,
        title="Order projected",
        state=RungState.DURABLE if facts.is_final else RungState.AHEAD,
        store=_STORE,
        location="callback_inbox, orders",
        identity=f"execution {facts.execution_id or 'unknown'}, run {facts.run}, "
        f"sequence {facts.last_projected_sequence}",
        record=inbox.last_event_id,
        durable_at=inbox.last_received_at if inbox.event_count else facts.updated_at,
        actor="gateway",
        summary=f"order {facts.status} at version {facts.version} after {inbox.event_count} events",
        disturbances=tuple(_inbox_disturbances(facts)),
    )


def _inbox_disturbances(facts: GatewayFacts) -> list[Disturbance]:
    inbox, found = facts.inbox, []
    if inbox.repeated_count:
        found.append(
            Disturbance("deduplicated", f"{inbox.repeated_count} events came more than once")
        )
    if inbox.queried_count:
        found.append(Disturbance("replayed", f"{inbox.queried_count} events were fetched by query"))
    if inbox.history_count:
        found.append(Disturbance("fenced", f"{inbox.history_count} late events are history only"))
    missing = facts.last_projected_sequence - facts.last_contiguous_sequence
    if missing > 0:
        after = facts.last_contiguous_sequence
        found.append(Disturbance("retried", f"events after sequence {after} are being fetched"))
    return found


def _platform_rungs(
    facts: GatewayFacts, platform: PlatformEvidence | None, problem: str
) -> tuple[Rung, ...]:
    known = {one.hop: one for one in platform.rungs} if platform is not None else {}
    return tuple(known.get(hop) or _unseen_rung(hop, facts, problem) for hop in _PLATFORM_TITLES)


def _unseen_rung(hop: int, facts: GatewayFacts, problem: str) -> Rung:
    rung = Rung(
        hop=hop,
        title=_PLATFORM_TITLES[hop],
        state=RungState.UNKNOWN if problem else RungState.AHEAD,
        store=_PLATFORM_STORE,
        location="",
        summary=f"the platform could not be asked: {problem}" if problem else "",
    )
    if hop == _SUBMITTED and facts.task_id is not None:
        identity = f"task {facts.task_id}, execution {facts.execution_id}"
        return replace(rung, state=RungState.DURABLE, identity=identity)
    if hop == _DELIVERED and problem and facts.inbox.event_count:
        seen = f"{facts.inbox.event_count} events were received here; {rung.summary}"
        return replace(rung, summary=seen)
    return rung


def _standing(rungs: Sequence[Rung], facts: GatewayFacts) -> tuple[Rung, ...]:
    """Make the first rung that is merely ahead the current one, if nothing stands before it."""
    done = {RungState.DURABLE, RungState.NOT_APPLICABLE}
    first = next((one for one in rungs if one.state not in done), None)
    if first is None or first.state is not RungState.AHEAD or facts.is_final:
        return tuple(rungs)
    current = replace(first, state=RungState.CURRENT)
    return tuple(current if one is first else one for one in rungs)


def _verdict(
    facts: GatewayFacts, rungs: Sequence[Rung], platform: PlatformEvidence | None, problem: str
) -> str:
    if facts.is_final:
        return f"Finished: the order is {facts.status}; nothing is left to do, the data is safe."
    dead = [one for one in facts.commands if one.status in {"DEAD", "QUARANTINED"}]
    if dead:
        return f"Stuck: {dead[-1].kind} was given up ({dead[-1].last_error}); the data is safe."
    if problem:
        return f"Unknown: the platform could not be asked ({problem}); the order is safe here."
    current = next((one for one in rungs if one.state is RungState.CURRENT), None)
    if current is not None and current.hop == _LAST:
        return "Under way: the gateway waits for the next callback; the data is safe."
    if platform is not None:
        return platform.verdict
    return "Under way: the command waits to be taken by the platform; the data is safe."
