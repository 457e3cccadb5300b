"""NATS carries hints only: its store may be wiped in the middle of an order."""

from __future__ import annotations

import shutil
from contextlib import aclosing

import pytest

from tests.acceptance.platform import World, check_done_once, tiny_zip
from tools.cli import journey

# For machines that do much else; alone it takes a fraction.
pytestmark = pytest.mark.timeout(180)


async def test_wiped_while_an_order_runs(world: World) -> None:
    """The order under way, one made while NATS is away, and one made afterwards all complete."""
    nats = world.platform.stack.nats
    async with world.gateway() as client:
        asset_id = await world.upload(client, tiny_zip())
        under_way = await world.place(client, asset_id, "under way")
        async with aclosing(journey.changes(client, under_way["order_id"])) as changes:
            async for change in changes:
                if change["status"] != "SUBMITTING":
                    break
        await nats.kill()
        shutil.rmtree(nats.store_folder)
        while_away = await world.place(client, asset_id, "while away")
        await nats.start()
        afterwards = await world.place(client, asset_id, "afterwards")
        for order in (under_way, while_away, afterwards):
            finished = await world.finished(client, order["order_id"])
            await check_done_once(world, client, finished)
