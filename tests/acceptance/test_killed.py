"""kill -9 of each process at its durable moments: the order completes once, and the ladder tells.

Each moment is a failpoint that the order itself reaches, so nothing depends on timing.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.platform import (
    World,
    check_done_once,
    disturbances,
    first_attempt_is_lost,
    tasks_of,
    tiny_zip,
)

# For machines that do much else; alone it takes a fraction.
pytestmark = pytest.mark.timeout(180)

NOTHING: frozenset[tuple[int, str]] = frozenset()
# Process, moment, and the disturbances of which the evidence has to show one (hop, kind); none
# where nothing has to be repeated.
MOMENTS = [
    # The task is durable and its answer is lost: the gateway asks again and is told the same ids.
    ("control-plane-1", "intake.commit.after", frozenset({(1, "retried"), (1, "replayed")})),
    # The attempt and its command are durable and nobody was woken.
    ("control-plane-1", "dispatch.commit.after", NOTHING),
    # The result is accepted and its acknowledgement is lost: the agent sends it again.
    ("control-plane-1", "accept.commit.after", frozenset({(8, "deduplicated")})),
    # The command is stored and its ack is lost: it comes again, is resumed, or goes elsewhere.
    (
        "agent-1",
        "agent.inbox.after",
        frozenset({(5, "re-leased"), (6, "replayed"), (7, "replayed")}),
    ),
    # The result is stored on the node and was not sent.
    ("agent-1", "agent.result.after", NOTHING),
    # The order is durable and its answer is lost: the client asks again with its key.
    ("gateway-1", "order.accept.after", NOTHING),
    # The platform has the task, and the gateway has not noted so.
    ("gateway-1", "gateway.submit.after", NOTHING),
    # The event is projected and its acknowledgement is lost: it is delivered again.
    ("gateway-1", "gateway.callback.reply.before", frozenset({(10, "deduplicated")})),
]


@pytest.mark.parametrize(("name", "failpoint", "wanted"), MOMENTS)
async def test_killed_at_a_moment(
    world: World, name: str, failpoint: str, wanted: frozenset[tuple[int, str]]
) -> None:
    """The process dies at the moment, is started again, and the order is completed once."""
    process = world.platform.process(name)
    async with world.gateway() as client:
        asset_id = await world.upload(client, tiny_zip())
        await process.restart({"TDP_FAILPOINTS": f"{failpoint}=kill@1"})
        async with asyncio.TaskGroup() as group:
            placing = group.create_task(world.place(client, asset_id, "killed"), name="place")
            await world.dies(process)
            await process.start()
        finished = await world.finished(client, placing.result()["order_id"])
        ladder = await check_done_once(world, client, finished)
    assert not wanted or wanted & disturbances(ladder), ladder


async def test_agent_dead_for_longer_than_its_lease(world: World) -> None:
    """The agent dies in the capability and stays away: another attempt is shown."""
    agent = world.platform.process("agent-1")
    async with world.gateway() as client, world.control() as control:
        asset_id = await world.upload(client, tiny_zip())
        await agent.restart({"TDP_FAILPOINTS": "agent.start.after=kill@1"})
        order = await world.place(client, asset_id, "killed")
        await world.dies(agent)
        [task] = await tasks_of(control, f'external_ref = "{order["order_id"]}"')
        await first_attempt_is_lost(control, task.current_execution.execution_id)
        await agent.start()
        finished = await world.finished(client, order["order_id"])
        ladder = await check_done_once(world, client, finished)
    assert (5, "re-leased") in disturbances(ladder)
    shown = await world.tdp("evidence", order["order_id"])
    assert shown.status == 0, shown.stderr
    for words in ("re-leased", "Order accepted", "Order projected", "Verdict: Finished"):
        assert words in shown.stdout
