"""kill -9 of each process at its durable moments: the order completes once, and the ladder tells.

Each moment is a failpoint that the order itself reaches, so nothing depends on timing.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.platform import World, check_done_once, disturbances, tiny_zip

# For machines that do much else; alone it takes a fraction.
pytestmark = pytest.mark.timeout(180)

MOMENTS = [
    # The task is durable and its answer is lost: the gateway asks again and is told the same ids.
    ("control-plane-1", "intake.commit.after"),
    # The attempt and its command are durable and nobody was woken.
    ("control-plane-1", "dispatch.commit.after"),
    # The result is accepted and its acknowledgement is lost: the agent sends it again.
    ("control-plane-1", "accept.commit.after"),
    # The command is stored and its acknowledgement is lost: it comes again.
    ("agent-1", "agent.inbox.after"),
    # The capability has begun.
    ("agent-1", "agent.start.after"),
    # The result is stored on the node and was not sent.
    ("agent-1", "agent.result.after"),
    # The order is durable and its answer is lost: the client asks again with its key.
    ("gateway-1", "order.accept.after"),
    # The platform has the task, and the gateway has not noted so.
    ("gateway-1", "gateway.submit.after"),
    # The event is projected and its acknowledgement is lost: it is delivered again.
    ("gateway-1", "gateway.callback.commit.after"),
]


@pytest.mark.parametrize(("name", "failpoint"), MOMENTS)
async def test_killed_at_a_moment(world: World, name: str, failpoint: str) -> None:
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
    print(name, failpoint, disturbances(ladder))
