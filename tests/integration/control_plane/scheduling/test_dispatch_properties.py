"""The batched dispatch against one item at a time, with repeats in the batch and rivals about."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from control_plane.core.scheduling.domain import NodeId
from control_plane.core.scheduling.planning import Placement, RequestKey
from control_plane.core.scheduling.ports import ParkedRequest
from foundation.postgres.pool import Database
from tests.integration.control_plane.engine.plant import IDS, Planted, step, workflow
from tests.integration.control_plane.scheduling.yard import FIGURES, NodeSpec, Yard

_NEEDS = {"minimum_resources": {"cpu_millis": 400}}
_DEFINITION = workflow(
    step("a"),
    step("b", affinity=_NEEDS, retry={"max_attempts": 3, "initial_delay": "1s", "jitter": 0}),
    step("each", for_each="${ input.list }", input="${ item }"),
)
_TROUBLES = (
    "",
    "",
    "",
    "update executions set paused = true where execution_id = $1",
    "update executions set status = 'CANCELING' where execution_id = $1",
    "update executions set closing_as = 'FAILED' where execution_id = $1",
    "update steps set status = 'CANCELED' where execution_id = $1 and step_key = 'a'",
    "update steps set deadline_at = tdp_now() where execution_id = $1 and step_key = 'b'",
    "update scheduling_requests set claim_id = null where execution_id = $1 and step_key = 'a'",
)
_OUTCOME = """
select
    request.step_key, request.item_index, request.status, request.reasons,
    step.status as step_status, execution.status as execution_status, execution.version,
    execution.last_sequence, execution.next_due_at is null as is_quiet,
    execution.started_at is not null as has_started, attempt.number, attempt.status as attempt,
    attempt.node_id::text, attempt.lease_version, attempt.reserved_cpu_millis, command.sequence,
    (select count(*) from execution_events as event
        where event.execution_id = request.execution_id) as event_count,
    (select count(*) from timeline
        where timeline.execution_id = request.execution_id) as entry_count
from scheduling_requests as request
inner join executions as execution using (execution_id)
inner join steps as step using (execution_id, step_key, item_index)
left join attempts as attempt using (execution_id, step_key, item_index)
left join node_commands as command on command.attempt_id = attempt.attempt_id
where request.execution_id = $1
order by request.step_key, request.item_index, attempt.number
"""
_NODE = """
select running_count, reserved_cpu_millis, last_command_sequence from nodes where node_id = $1
"""
_DOUBLE_STARTS = """
select execution_id from execution_events where type = 'execution.started'
group by execution_id having count(*) > 1
"""
_GAPS = """
select execution.execution_id
from executions as execution
inner join execution_events as event using (execution_id)
group by execution.execution_id
having count(*) <> execution.last_sequence or max(event.sequence) <> execution.last_sequence
"""
_UNTRUE_REQUESTS = """
select request.execution_id
from scheduling_requests as request
left join attempts as attempt
    on attempt.execution_id = request.execution_id
    and attempt.step_key = request.step_key
    and attempt.item_index = request.item_index
    and attempt.number = request.attempt_number
where (request.status = 'DISPATCHED') <> (attempt.attempt_id is not null)
"""


_LEFT = """
select
    execution.status, execution.closing_as, execution.advance_error, step.step_key,
    step.item_index, step.status as step_status, step.attempt_number, request.status as request,
    request.reasons, attempt.status as attempt, attempt.stop_reason
from executions as execution
inner join steps as step using (execution_id)
left join scheduling_requests as request
    on request.execution_id = step.execution_id
    and request.step_key = step.step_key
    and request.item_index = step.item_index
    and request.attempt_number = step.attempt_number
left join attempts as attempt
    on attempt.execution_id = step.execution_id
    and attempt.step_key = step.step_key
    and attempt.item_index = step.item_index
    and attempt.number = step.attempt_number
where execution.completed_at is null
"""


class _Twin:
    """One of two equal halves of a scenario: the same work and the same nodes, other ids."""

    def __init__(self, yard: Yard, planted: Sequence[Planted], nodes: Sequence[NodeId]) -> None:
        self.yard = yard
        self.planted = planted
        self.nodes = nodes

    @classmethod
    async def make(cls, yard: Yard, seed: int) -> "_Twin":
        dice = Random(seed)
        planted = await yard.plant.create(
            _DEFINITION, dice.randint(4, 12), input_document={"list": [1, 2]}
        )
        await yard.plant.advance(planted)
        nodes = [
            await yard.add_node(
                NodeSpec(slots=dice.randint(1, 12), cpu_millis=dice.choice([0, 500, 2_000]))
            )
            for _ in range(3)
        ]
        return cls(yard, planted, [*nodes, NodeId(IDS.new_id())])

    async def trouble(self, dice: Random) -> None:
        """Let things have happened between claim and dispatch."""
        for one in self.planted:
            statement = dice.choice(_TROUBLES)
            if statement:
                await self.yard.database.fetch(statement, one.execution_id)

    def placements(self, claimed: Sequence[Placement], dice: Random) -> list[Placement]:
        """Propose the twin's own requests in some order, some twice, some to unknown nodes."""
        places = {one.execution_id: place for place, one in enumerate(self.planted)}
        own = sorted(
            (one for one in claimed if one.request.key.execution_id in places),
            key=lambda one: (places[one.request.key.execution_id], one.request.key.step),
        )
        chosen = [replace(one, node_id=dice.choice(self.nodes)) for one in own]
        chosen += [dice.choice(chosen) for _ in range(5)]
        dice.shuffle(chosen)
        return chosen

    async def outcome(self) -> list[Any]:
        """Return what is stored, without what differs between the twins by nature."""
        names = {node_id: place for place, node_id in enumerate(self.nodes)}
        rows: list[Any] = []
        for one in self.planted:
            stored = await self.yard.database.fetch(_OUTCOME, one.execution_id)
            rows += [dict(row) | {"node_id": names.get(row["node_id"])} for row in stored]
        for node_id in self.nodes:
            rows += [dict(row) for row in await self.yard.database.fetch(_NODE, node_id)]
        return rows


@pytest.mark.parametrize("seed", range(8))
async def test_a_batch_comes_to_what_its_items_would_one_by_one(
    control_database: Database, seed: int
) -> None:
    """Whatever happened between claim and dispatch, the rows afterwards are the same."""
    yard = Yard(control_database)
    together, singly = [await _Twin.make(yard, seed) for _ in range(2)]
    claim_id, claimed = await yard.claim()
    for twin in (together, singly):
        await twin.trouble(Random(seed + 100))

    batch = await yard.store.dispatch(claim_id, together.placements(claimed, Random(seed + 200)))
    fates: dict[RequestKey, Any] = {}
    for one in singly.placements(claimed, Random(seed + 200)):
        done = await yard.store.dispatch(claim_id, [one])
        # A repeat finds the claim gone: the first answer is the one that counts.
        fates = dict(done.fates) | fates

    assert await together.outcome() == await singly.outcome()
    assert sorted(batch.fates.values()) == sorted(fates.values())
    assert len(set(batch.fates.values())) > 2, "the scenario is too tame"
    await yard.check()


class _Rivals:
    """Everybody who works on the same executions, each in a task of its own."""

    def __init__(self, yard: Yard, planted: Sequence[Planted], seed: int) -> None:
        self.yard = yard
        self.ids = [one.execution_id for one in planted]
        self.seed = seed

    async def run(self) -> None:
        work = (
            self.schedule(),
            self.schedule(),
            self.dispatch_blindly(Random(self.seed + 1)),
            self.end_attempts(Random(self.seed + 2)),
            self.advance(Random(self.seed + 3)),
            self.cancel(Random(self.seed + 4)),
        )
        await asyncio.gather(*work)

    async def schedule(self) -> None:
        scheduler = self.yard.new_scheduler(self.yard.new_store())
        for _ in range(12):
            await scheduler.run_once()

    async def dispatch_blindly(self, dice: Random) -> None:
        """Claim, choose any node, dispatch twice, and park what is dispatched by then."""
        nodes = [node.node_id for node in await self.yard.store.nodes()]
        for _ in range(12):
            claim_id, claimed = await self.yard.claim(20)
            chosen = [replace(one, node_id=dice.choice(nodes)) for one in claimed]
            await self.yard.store.dispatch(claim_id, chosen * 2)
            parked = [ParkedRequest(one.request.key, ["why"], never=False) for one in chosen]
            await self.yard.store.park(claim_id, parked)

    async def end_attempts(self, dice: Random) -> None:
        for _ in range(12):
            live = await self.yard.plant.live_attempts()
            some = dice.sample(live, len(live) // 2)
            await self.yard.plant.succeed(some[::2])
            await self.yard.plant.fail(some[1::2], retryable=True)

    async def advance(self, dice: Random) -> None:
        for _ in range(12):
            await self.yard.plant.driver.advance(dice.sample(self.ids, 15))

    async def cancel(self, dice: Random) -> None:
        for execution_id in dice.sample(self.ids, 5):
            await self.yard.database.fetch(
                "update executions set status = 'CANCELING', next_due_at = tdp_now()"
                " where execution_id = $1 and status in ('CREATED', 'QUEUED', 'RUNNING')",
                execution_id,
            )


@pytest.mark.parametrize("seed", range(3))
async def test_rivals_never_break_what_must_hold(control_database: Database, seed: int) -> None:
    """Two schedulers, an engine, cancels, failures and lost claims, all at once, for a while."""
    yard = Yard(control_database, replace(FIGURES, claim_ttl_s=0.02))
    for slots, cpu_millis in ((5, 0), (3, 2_000), (8, 600)):
        await yard.add_node(NodeSpec(slots=slots, cpu_millis=cpu_millis))
    planted = await yard.plant.create(_DEFINITION, 25, input_document={"list": [1, 2]})
    await yard.plant.advance(planted)

    await _Rivals(yard, planted, seed).run()

    await yard.check()
    for statement in (_DOUBLE_STARTS, _GAPS, _UNTRUE_REQUESTS):
        assert await yard.database.fetch(statement) == [], statement
    await _finish(yard, planted)


async def _finish(yard: Yard, planted: Sequence[Planted]) -> None:
    """Once the rivals have gone, and there is room for everything, it comes to its end."""
    await yard.add_node(NodeSpec(slots=4, cpu_millis=4_000))
    for _ in range(60):
        if not await yard.plant.unfinished():
            return
        await yard.database.fetch(
            "update scheduling_requests set available_at = tdp_now()"
            " where status in ('PENDING', 'CLAIMED')"
        )
        await yard.scheduler.run_once()
        await yard.plant.succeed(await yard.plant.live_attempts())
        await yard.plant.advance(planted)
    left = await yard.database.fetch(_LEFT)
    raise AssertionError(f"it does not end: {[dict(row) for row in left]}")
