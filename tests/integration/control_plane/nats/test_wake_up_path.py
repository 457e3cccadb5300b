"""Wake-ups over a real NATS: it may be slow, repeat, lose its stream or its store, or be away."""

import asyncio
import json
import shutil
from uuid import UUID

import pytest

from control_plane.adapters.nats_stream import CONSUMER, STREAM
from control_plane.adapters.outbound.nats_connection import NatsClosedError
from foundation.clock import SystemClock
from foundation.ids import SystemIds
from foundation.outbox.model import Dead, Delivered, DestinationUnreachable, OutboxRow
from foundation.postgres.pool import Database
from tests.fixtures.servers import FreshNats
from tests.integration.control_plane.nats.rig import (
    PumpService,
    Rig,
    running,
    statuses_are,
    until,
)

_IDS = SystemIds(SystemClock())
_CLOCK = SystemClock()


@pytest.fixture
def rig(control_database: Database, nats_server: FreshNats) -> Rig:
    return Rig(control_database, nats_server.url)


def _row(payload: str) -> OutboxRow:
    return OutboxRow(
        outbox_id=UUID(_IDS.new_id()),
        ordering_key=None,
        position=1,
        destination="jetstream",
        payload=payload,
        attempts=0,
        claims=1,
        claim_id=UUID(_IDS.new_id()),
        created_at=_CLOCK.now(),
    )


def _note(execution_id: str, sequence: int = 1, kind: str = "execution.created") -> str:
    return json.dumps({"execution_id": execution_id, "sequence": sequence, "type": kind})


async def _nothing_unacked(rig: Rig) -> bool:
    info = await rig.jetstream.consumer_info(STREAM, CONSUMER)
    return (info.num_ack_pending, info.num_pending) == (0, 0)


async def _all_published(rig: Rig) -> bool:
    row = await rig.plant.database.fetchrow(
        "select count(*) as left from outbox_events where status <> 'PUBLISHED'"
    )
    return row is not None and row["left"] == 0


async def test_a_batch_is_published_once_each(rig: Rig) -> None:
    """Five hundred rows get their PubAcks together; the same rows again are no new messages."""
    async with running(rig.connection, rig.consumer):
        await rig.ready()
        rows = [_row(_note(_IDS.new_id())) for _ in range(500)]

        first = await rig.publisher.publish(rows)
        second = await rig.publisher.publish(rows)

        assert set(first) == set(second) == {Delivered()}
        assert (await rig.jetstream.stream_info(STREAM)).state.messages == 500


async def test_an_odd_row_is_dead_and_holds_nobody_up(rig: Rig) -> None:
    """A payload that names no event is refused for good; its neighbour is published."""
    async with running(rig.connection, rig.consumer):
        await rig.ready()

        odd, good = await rig.publisher.publish([_row('{"x":1}'), _row(_note(_IDS.new_id()))])

        assert isinstance(odd, Dead)
        assert good == Delivered()


async def test_without_nats_a_publish_answers_at_once(rig: Rig, nats_server: FreshNats) -> None:
    """Neither before the first connection nor after a loss does it wait, or count an attempt."""
    (outcome,) = await rig.publisher.publish([_row(_note(_IDS.new_id()))])
    assert isinstance(outcome, DestinationUnreachable)
    async with running(rig.connection, rig.consumer):
        await rig.ready()
        await nats_server.server.stop(immediate=True)
        async with asyncio.timeout(5.0):
            (outcome,) = await rig.publisher.publish([_row(_note(_IDS.new_id()))])
        assert isinstance(outcome, DestinationUnreachable)


async def test_messages_alone_drive_an_execution(rig: Rig) -> None:
    """Without a hint of its own replica the engine hears by JetStream, and acks after that."""
    async with running(rig.connection, rig.consumer, *rig.engine(), PumpService(rig.pump)):
        await rig.ready()
        planted = await rig.plant.create(count=50)
        await rig.plant.database.fetch("update executions set next_due_at = null")
        rig.hints.outbox.set()

        ids = [one.execution_id for one in planted]
        await until(statuses_are(rig.plant, ids, "QUEUED"), what="all are queued")
        await until(lambda: _nothing_unacked(rig), what="every message is acked")
        assert rig.consumer.waiting_count == 0


async def test_repeated_and_known_messages_cost_no_advance(rig: Rig) -> None:
    """What was advanced before is acked without the engine's loop, which does not run here."""
    async with running(rig.connection, rig.consumer):
        await rig.ready()
        (one,) = await rig.plant.create()
        await rig.plant.advance([one])

        for _ in range(5):
            await rig.publisher.publish([_row(_note(one.execution_id))])

        await until(lambda: _nothing_unacked(rig), what="all five are acked")
        assert rig.hints.engine.take(10) == []


async def test_a_poisonous_message_is_set_aside(rig: Rig) -> None:
    """A message that nobody can read is not delivered again, and the next one is served."""
    async with running(rig.connection, rig.consumer, *rig.engine()):
        await rig.ready()
        (one,) = await rig.plant.create()
        await rig.jetstream.publish("tdp.execution.created", b"\xff\x00 no JSON")
        await rig.publisher.publish([_row(_note(one.execution_id))])

        await until(statuses_are(rig.plant, [one.execution_id], "QUEUED"), what="it is queued")
        await until(lambda: _nothing_unacked(rig), what="both are done with")


async def test_a_message_about_a_failing_execution_is_acked(rig: Rig) -> None:
    """Its error is stored, and retries come from the sweep, not from the message."""
    async with running(rig.connection, rig.consumer, *rig.engine()):
        await rig.ready()
        (one,) = await rig.plant.create()
        await rig.plant.database.fetch("update executions set snapshot_digest = 'gone'")
        await rig.publisher.publish([_row(_note(one.execution_id))])

        await until(lambda: _nothing_unacked(rig), what="it is acked")
        assert (await rig.plant.execution(one))["advance_error"] is not None


async def test_a_deleted_stream_is_made_anew(rig: Rig) -> None:
    """The first publish that finds no stream has it made; its messages arrive again."""
    async with running(rig.connection, rig.consumer, *rig.engine(), PumpService(rig.pump)):
        await rig.ready()
        await rig.jetstream.delete_stream(STREAM)

        planted = await rig.plant.create(count=10)
        await rig.plant.database.fetch("update executions set next_due_at = null")
        rig.hints.outbox.set()

        ids = [one.execution_id for one in planted]
        await until(statuses_are(rig.plant, ids, "QUEUED"), what="all are queued")
        await until(lambda: _all_published(rig), what="the backlog is drained")
        await until(lambda: _nothing_unacked(rig), what="every message is acked")


async def test_a_deleted_consumer_is_made_anew(rig: Rig) -> None:
    """The next check finds it missing."""
    async with running(rig.connection, rig.consumer, *rig.engine(), PumpService(rig.pump)):
        await rig.ready()
        await rig.jetstream.delete_consumer(STREAM, CONSUMER)
        rig.consumer.recheck()
        await rig.ready()

        (one,) = await rig.plant.create()
        await rig.plant.database.fetch("update executions set next_due_at = null")
        rig.hints.outbox.set()

        await until(statuses_are(rig.plant, [one.execution_id], "QUEUED"), what="it is queued")


async def test_work_goes_on_while_nats_is_away_and_after_its_store_was_wiped(
    rig: Rig, nats_server: FreshNats
) -> None:
    """The sweep advances what nobody announced; afterwards the backlog drains by itself."""
    async with running(rig.connection, rig.consumer, *rig.engine(), PumpService(rig.pump)):
        await rig.ready()
        before = await rig.plant.create(count=5)
        rig.hints.outbox.set()
        await until(
            statuses_are(rig.plant, [one.execution_id for one in before], "QUEUED"),
            what="those before are queued",
        )

        await nats_server.server.stop(immediate=True)
        during = await rig.plant.create(count=5)
        rig.hints.outbox.set()
        await until(
            statuses_are(rig.plant, [one.execution_id for one in during], "QUEUED"),
            what="those accepted meanwhile are queued by the sweep",
        )

        shutil.rmtree(nats_server.server.store_folder)
        await nats_server.server.start()
        after = await rig.plant.create(count=5)
        await rig.plant.database.fetch(
            "update executions set next_due_at = null where status = 'CREATED'"
        )
        rig.hints.outbox.set()
        await until(
            statuses_are(rig.plant, [one.execution_id for one in after], "QUEUED"),
            what="those after are queued by messages",
        )
        await until(lambda: _all_published(rig), what="the backlog is drained")
        dead = await rig.plant.database.fetch("select 1 from outbox_events where attempts > 0")
        assert dead == []


async def test_replicas_share_the_messages(
    control_database: Database, nats_server: FreshNats
) -> None:
    """Two replicas on one consumer: every execution is advanced, each message once acked."""
    rigs = [Rig(control_database, nats_server.url) for _ in range(2)]
    async with (
        running(rigs[0].connection, rigs[0].consumer, *rigs[0].engine()),
        running(rigs[1].connection, rigs[1].consumer, *rigs[1].engine()),
    ):
        for rig in rigs:
            await rig.ready()
        planted = await rigs[0].plant.create(count=100)
        await rigs[0].plant.database.fetch("update executions set next_due_at = null")
        await rigs[0].publisher.publish([_row(_note(one.execution_id)) for one in planted])

        ids = [one.execution_id for one in planted]
        await until(statuses_are(rigs[0].plant, ids, "QUEUED"), what="all are queued")
        await until(lambda: _nothing_unacked(rigs[0]), what="every message is acked")
        shares = [sum(rig.plant.driver.covers(one, 1) for one in ids) for rig in rigs]
        assert min(shares) > 0


async def test_hints_cross_replicas_once(
    control_database: Database, nats_server: FreshNats
) -> None:
    """A node's wake-up and freed capacity reach the other replica, and do not come back."""
    here, there = (Rig(control_database, nats_server.url) for _ in range(2))
    async with (
        running(here.connection, here.consumer, here.wakeups),
        running(there.connection, there.consumer, there.wakeups),
    ):
        for rig in (here, there):
            await rig.ready()
            await rig.connection.client.flush()

        await here.wakeups.wake(["n1", "n2"])
        here.hints.capacity_freed()
        here.hints.scheduler = type(here.hints.scheduler)()
        async with asyncio.timeout(10.0):
            assert await there.hints.scheduler.wait()

        await until(lambda: _answer(there.nodes_woken == ["n1", "n2"]), what="both are woken")
        await here.connection.client.flush()
        assert here.nodes_woken == []
        assert not here.hints.scheduler.pending
        assert not there.hints.capacity.pending


async def test_watchers_elsewhere_hear_of_events(
    control_database: Database, nats_server: FreshNats
) -> None:
    """An event that one replica publishes wakes those who watch its execution on another."""
    here, there = (Rig(control_database, nats_server.url) for _ in range(2))
    async with (
        running(here.connection, here.consumer),
        running(there.connection, there.consumer, there.wakeups),
    ):
        for rig in (here, there):
            await rig.ready()
        await there.connection.client.flush()
        execution_id = _IDS.new_id()

        await here.publisher.publish([_row(_note(execution_id))])

        async with asyncio.timeout(10.0):
            await there.hints.watchers.wait()
        assert there.hints.watchers.take(10) == [execution_id]


async def test_a_connection_that_is_closed_for_good_ends_the_service(rig: Rig) -> None:
    """The process has to end then, as nothing would ever arrive again."""
    task = asyncio.create_task(rig.connection.run(), name="nats")
    await until(lambda: _answer(rig.connection.is_connected), what="it is connected")

    await rig.connection.client.close()

    with pytest.raises(NatsClosedError):
        await task


@pytest.mark.parametrize("tried", [False, True])
async def test_a_service_that_never_connected_stops(
    control_database: Database,
    tried: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Nothing listens there: stopping does not wait for a connection."""
    rig = Rig(control_database, "nats://127.0.0.1:1")
    async with running(rig.connection, rig.consumer, rig.wakeups):
        await rig.wakeups.wake(["n1"])
        if tried:
            client = rig.connection.client
            await until(lambda: _answer(client.last_error is not None), what="it has tried")
    assert not rig.connection.is_connected


async def test_the_stream_is_bounded(rig: Rig) -> None:
    """Old wake-ups make room: bounded bytes, an hour at most, on disk."""
    async with running(rig.connection, rig.consumer):
        await rig.ready()
        config = (await rig.jetstream.stream_info(STREAM)).config
        assert (config.max_bytes, config.max_age) == (8 * 1024 * 1024, 3_600.0)
        assert (config.discard, config.storage) == ("old", "file")


async def _answer(value: bool) -> bool:  # noqa: FBT001 - what a condition is waited for
    return value
