"""Durable commands: what a new session sends again, and what is voided while it is being sent."""

import asyncio

from control_plane.core.nodes.domain import CommandDemand, SessionRef
from tests.integration.control_plane.nodes.world import IDS, World, success

_SOMEBODY_WAITS = (
    "select exists (select 1 from pg_stat_activity where datname = current_database()"
    " and wait_event_type = 'Lock')"
)


async def _statuses(world: World) -> list[str]:
    return [
        row[0] for row in await world.rows("select status from node_commands order by sequence")
    ]


async def test_a_new_session_sends_again_what_the_journal_lacks(world: World) -> None:
    """Up to the told sequence it is stored, above it sent again; RUNs that are over are not."""
    node_id = await world.add_node()
    session = SessionRef(node_id, (await world.open(node_id)).generation)
    stored, over, lacking = [await world.new_attempt(node_id) for _ in range(3)]
    await world.commands.take([CommandDemand(session, 8, 8)])
    await world.accept([success(over)])
    await world.open(node_id, stored, last_command_sequence=1)
    assert await _statuses(world) == ["ACKED", "VOIDED", "PENDING"]
    assert (await world.fetch_node(node_id))["acked_command_sequence"] == 1
    assert (await world.fetch_attempt(lacking))["status"] == "DISPATCHED"


async def test_a_new_journal_acks_nothing_that_the_server_did_not_know(world: World) -> None:
    """The server's own record decides what is sent again to a new incarnation."""
    node_id = await world.add_node()
    session = SessionRef(node_id, (await world.open(node_id)).generation)
    await world.new_attempt(node_id)
    await world.commands.take([CommandDemand(session, 8, 8)])
    await world.open(node_id, incarnation_id=IDS.new_id(), last_command_sequence=1)
    assert await _statuses(world) == ["PENDING"]


async def test_what_is_voided_meanwhile_is_not_sent(world: World) -> None:
    """A RUN whose attempt ends while it is being marked stays VOIDED and is not returned."""
    node_id = await world.add_node()
    session = SessionRef(node_id, (await world.open(node_id)).generation)
    await world.new_attempt(node_id)
    async with world.database.transaction() as other:
        await other.execute("update node_commands set status = 'VOIDED'")
        taking = asyncio.ensure_future(world.commands.take([CommandDemand(session, 8, 8)]))
        async with asyncio.timeout(20):
            while not await world.value(_SOMEBODY_WAITS):
                pass
    assert await taking == []
    assert await _statuses(world) == ["VOIDED"]


async def test_a_command_without_an_ack_is_sent_again_with_its_id(world: World) -> None:
    """After the ack time-out the same command comes again, and takes no second credit."""
    node_id = await world.add_node()
    session = SessionRef(node_id, (await world.open(node_id)).generation)
    await world.new_attempt(node_id)
    demand = CommandDemand(session, 1, 8)
    (first,) = await world.commands.take([demand])
    assert await world.commands.take([demand]) == []
    assert await world.commands.undelivered([node_id]) == []
    await world.database.fetch("update node_commands set sent_at = sent_at - interval '6 seconds'")
    assert await world.commands.undelivered([node_id]) == [node_id]
    (again,) = await world.commands.take([CommandDemand(session, 0, 8)])
    assert (again.command_id, again.is_first) == (first.command_id, False)
