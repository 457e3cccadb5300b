"""Two control planes and three agents on one database: everything is done, and done once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tdp.control.v1 import task_pb2
from tests.acceptance.platform import World, attempts_of, tasks_of, tiny_zip

# For machines that do much else; alone it takes a fraction.
pytestmark = pytest.mark.timeout(300)

ORDERS = 200
# No order waits for itself alone: any may be served last.
CROWD_PATIENCE_S = 200.0


async def test_two_hundred_orders(crowd: World) -> None:
    """200 orders made at once all complete; none is doubled; every node had a share."""
    async with crowd.gateway() as client:
        asset_id = await crowd.upload(client, tiny_zip({"a.txt": b"a", "Thumbs.db": b"junk"}))
        orders = await asyncio.gather(*(crowd.place(client, asset_id) for _ in range(ORDERS)))
        ids = {one["order_id"] for one in orders}
        assert len(ids) == ORDERS
        # One live stream at a time: most are final by the time that they are looked at.
        finished = [await crowd.finished(client, one, CROWD_PATIENCE_S) for one in sorted(ids)]
    assert Counter(one["status"] for one in finished) == {"COMPLETED": ORDERS}
    assert len({one["task_id"] for one in finished}) == ORDERS
    await check_platform(crowd, ids)


async def check_platform(world: World, ids: set[str]) -> None:
    """Assert one task for each order, one run, and one accepted attempt for each step."""
    nodes: Counter[str] = Counter()
    async with world.control() as control:
        known = [one for one in await tasks_of(control, "") if one.external_ref in ids]
        assert Counter(one.external_ref for one in known) == dict.fromkeys(ids, 1)
        for task in known:
            assert task.current_execution.run == 1
            attempts = await attempts_of(control, task.current_execution.execution_id)
            succeeded = [one for one in attempts if one.status == task_pb2.ATTEMPT_STATUS_SUCCEEDED]
            assert len(succeeded) == 1
            nodes[succeeded[0].node_id] += 1
    assert len(nodes) == 3
