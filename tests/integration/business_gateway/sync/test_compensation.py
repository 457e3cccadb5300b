"""Queries bring what callbacks did not: gaps, lost ends, new runs; F05, F09, F24."""

import asyncio

import pytest

from business_gateway.core.callbacks.envelope import parse_envelope
from business_gateway.core.callbacks.ports import Arrival
from business_gateway.sync_failpoints import SYNC_FAILPOINTS
from foundation.errors import InternalError, UnavailableError
from foundation.failpoints import install_failpoints, uninstall_failpoints
from foundation.postgres.pool import Database
from tdp.control.v1 import system_service_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tests.integration.business_gateway.sync.conftest import Sync, replica
from tests.integration.business_gateway.sync.platform import (
    APPLICATION_ID,
    Execution,
    Platform,
    client_of,
    served,
)


async def take(sync: Sync, envelope: str) -> None:
    """Let an event arrive as a callback."""
    await sync.inbox.add(Arrival(parse_envelope(envelope.encode(), APPLICATION_ID)))


async def accepted(sync: Sync) -> tuple[str, Execution]:
    """An order that the platform has taken, and its first run."""
    order_id = await sync.desk.new_order()
    await sync.desk.submit(order_id)
    await sync.pump.run_once()
    task_id = str((await sync.desk.order(order_id))["task_id"])
    return order_id, sync.platform.runs[task_id][0]


async def sources(sync: Sync) -> list[tuple[int, int, str]]:
    """Run, sequence and source of every event in the inbox."""
    _, _, inbox = await sync.desk.everything()
    return sorted((one["run"], one["sequence"], one["source"]) for one in inbox)


async def test_a_gap_is_filled_after_its_grace(sync: Sync) -> None:
    """Events 2 and 3 were lost: they are fetched under their own ids, and change nothing seen."""
    order_id, execution = await accepted(sync)
    for status, progress in (("RUNNING", 0), ("RUNNING", 30), ("RUNNING", 60)):
        sync.platform.tell(execution, status, progress)
    await take(sync, execution.envelopes[0])
    await take(sync, execution.envelopes[3])
    assert sync.heard.gaps == [order_id]
    before = await sync.desk.order(order_id)

    sync.compensation.gap_seen(order_id)
    assert sync.compensation.wakeup.pending
    assert 0 < await sync.compensation.run_once() <= 1.0
    assert not sync.platform.asked(pb.ListExecutionEventsRequest)
    sync.clock.advance(1.0)
    assert await sync.compensation.run_once() > 1.0

    (asked,) = sync.platform.asked(pb.ListExecutionEventsRequest)
    assert asked.after_sequence == 1
    assert await sources(sync) == [
        (1, 1, "CALLBACK"), (1, 2, "QUERY"), (1, 3, "QUERY"), (1, 4, "CALLBACK"),
    ]  # fmt: skip
    after = await sync.desk.order(order_id)
    assert (after["last_contiguous_sequence"], after["version"]) == (4, before["version"])
    assert not sync.platform.asked(pb.GetTaskRequest)


async def test_a_gap_that_closed_by_itself_is_not_asked_about(sync: Sync) -> None:
    """A delivery that was merely overtaken arrives within the grace."""
    order_id, execution = await accepted(sync)
    sync.platform.tell(execution, "RUNNING")
    await take(sync, execution.envelopes[1])
    sync.compensation.gap_seen(order_id)
    await take(sync, execution.envelopes[0])
    sync.clock.advance(2.0)
    await sync.compensation.run_once()
    assert not sync.platform.asked(pb.ListExecutionEventsRequest)


async def test_an_order_without_any_callback_comes_to_its_end(sync: Sync) -> None:
    """The sweep alone brings every event, page by page, and the output with them."""
    order_id, execution = await accepted(sync)
    for progress in range(1, 8):
        sync.platform.tell(execution, "RUNNING", progress * 10)
    sync.platform.tell(execution, "SUCCEEDED", 100, output={"n": 12345678901234567890})
    sync.platform.page_size_max = 3
    await sync.fall_quiet()
    await sync.compensation.run_once()
    order = await sync.desk.order(order_id)
    assert (order["status"], order["progress_percent"]) == ("COMPLETED", 100)
    assert order["output_json"] == '{"n": 12345678901234567890}'
    assert order["last_contiguous_sequence"] == 9
    assert {source for _, _, source in await sources(sync)} == {"QUERY"}
    assert [one.after_sequence for one in sync.platform.asked(pb.ListExecutionEventsRequest)] == [
        0, 3, 6,
    ]  # fmt: skip

    await sync.fall_quiet()
    await sync.compensation.run_once()
    assert len(sync.platform.asked(pb.ListExecutionEventsRequest)) == 3


async def test_orders_that_are_fresh_or_not_submitted_are_left_alone(sync: Sync) -> None:
    """Only what has been quiet for long is asked about; what was never submitted cannot be."""
    await sync.desk.new_order()
    await accepted(sync)
    await sync.compensation.run_once()
    assert not sync.platform.asked(pb.GetTaskRequest)
    await sync.fall_quiet()
    await sync.compensation.run_once()
    assert len(sync.platform.asked(pb.GetTaskRequest)) == 1
    # It counts as heard of now, until it has been quiet for long again.
    sync.clock.advance(60.0)
    await sync.compensation.run_once()
    assert len(sync.platform.asked(pb.GetTaskRequest)) == 1


async def test_a_run_begun_elsewhere_is_found(sync: Sync) -> None:
    """Run 2, of which every callback was lost, replaces run 1; run 1's end is history."""
    order_id, first = await accepted(sync)
    await take(sync, first.envelopes[0])
    sync.platform.tell(first, "FAILED", 20, failure={"reason": "X", "message": "no"})
    second = sync.platform.begin(order_id, first.task_id)
    sync.platform.tell(second, "RUNNING", 40)
    await sync.fall_quiet()
    await sync.compensation.run_once()
    order = await sync.desk.order(order_id)
    assert (order["run"], order["status"], order["progress_percent"]) == (2, "PROCESSING", 40)
    assert str(order["execution_id"]) == second.execution_id
    assert len(await sources(sync)) == 4


async def test_the_platform_out_of_reach_raises_and_is_asked_again(
    gateway_database: Database, platform: Platform
) -> None:
    """The loop backs off; once the platform is back, the next sweep finds the end."""
    async with served(platform) as port, replica(gateway_database, platform, port) as sync:
        order_id, execution = await accepted(sync)
        sync.platform.tell(execution, "SUCCEEDED", 100)
        await sync.fall_quiet()
        # The channel itself tries four times.
        sync.platform.refusals["ListExecutionEvents"] += [UnavailableError("starting")] * 4
        with pytest.raises(UnavailableError):
            await sync.compensation.run_once()
        await sync.fall_quiet()
        await sync.compensation.run_once()
        assert (await sync.desk.order(order_id))["status"] == "COMPLETED"


async def test_one_failing_order_keeps_from_no_other(sync: Sync) -> None:
    """An answer that fails for one order is logged, and the others are asked about."""
    orders = [await accepted(sync) for _ in range(5)]
    for _, execution in orders:
        sync.platform.tell(execution, "SUCCEEDED", 100)
    sync.platform.refusals["ListExecutionEvents"].append(InternalError("a defect"))
    await sync.fall_quiet()
    await sync.compensation.run_once()
    statuses = [(await sync.desk.order(order_id))["status"] for order_id, _ in orders]
    assert sorted(statuses) == ["COMPLETED"] * 4 + ["PROCESSING"]
    assert sync.compensation.counts["failed"] == 1


async def test_a_finished_orders_gap_is_given_up_when_the_platform_forgot_it(sync: Sync) -> None:
    """Nothing can be fetched any more, so nobody asks for ever."""
    order_id, execution = await accepted(sync)
    sync.platform.tell(execution, "RUNNING")
    await take(sync, sync.platform.tell(execution, "SUCCEEDED", 100))
    sync.platform.runs.clear()
    await sync.fall_quiet()
    await sync.compensation.run_once()
    order = await sync.desk.order(order_id)
    assert order["last_contiguous_sequence"] == order["last_projected_sequence"] == 3
    await sync.fall_quiet()
    await sync.compensation.run_once()
    assert len(sync.platform.asked(pb.ListExecutionEventsRequest)) == 1


async def test_an_unfinished_orders_gap_stays_even_when_the_platform_forgot_it(
    sync: Sync,
) -> None:
    """What is missing of a run under way may be its end: it is not given up."""
    order_id, execution = await accepted(sync)
    sync.platform.tell(execution, "RUNNING")
    await take(sync, sync.platform.tell(execution, "RUNNING", 50))
    sync.platform.runs.clear()
    await sync.fall_quiet()
    await sync.compensation.run_once()
    order = await sync.desk.order(order_id)
    assert (order["last_contiguous_sequence"], order["last_projected_sequence"]) == (0, 3)


async def test_a_sweep_is_bounded_and_takes_the_quietest_first(
    gateway_database: Database, platform: Platform
) -> None:
    """At most two orders a sweep, and the next sweep no sooner than its interval."""
    async with (
        served(platform) as port,
        replica(gateway_database, platform, port, orders_max=2, sweep_interval_s=7.0) as sync,
    ):
        for _ in range(5):
            await accepted(sync)
        await sync.fall_quiet()
        assert await sync.compensation.run_once() == 7.0
        assert len(sync.platform.asked(pb.GetTaskRequest)) == 2
        assert await sync.compensation.run_once() == 7.0
        assert len(sync.platform.asked(pb.GetTaskRequest)) == 2
        for _ in range(2):
            sync.clock.advance(7.0)
            await sync.compensation.run_once()
        asked = [one.task_id for one in sync.platform.asked(pb.GetTaskRequest)]
        assert sorted(asked) == sorted(sync.platform.runs)


async def test_replicas_share_the_quiet_orders(
    gateway_database: Database, platform: Platform
) -> None:
    """Two replicas that sweep at once ask about each order once."""
    async with (
        served(platform) as port,
        replica(gateway_database, platform, port) as one,
        replica(gateway_database, platform, port) as other,
    ):
        for _ in range(20):
            await accepted(one)
        await one.fall_quiet()
        other.clock.advance(120.0)
        await asyncio.gather(one.compensation.run_once(), other.compensation.run_once())
        asked = [request.task_id for request in platform.asked(pb.GetTaskRequest)]
        assert sorted(asked) == sorted(platform.runs)


@pytest.mark.parametrize(
    "point",
    ["gateway.compensate.take.after", "gateway.compensate.query.before",
     "gateway.compensate.query.after", "gateway.callback.commit.after"],
)  # fmt: skip
async def test_a_broken_query_is_made_again(sync: Sync, point: str) -> None:
    """F01: whatever breaks between query and projection, the next sweep ends the same."""
    order_id, execution = await accepted(sync)
    sync.platform.tell(execution, "SUCCEEDED", 100)
    await sync.fall_quiet()
    install_failpoints(SYNC_FAILPOINTS, {"TDP_FAILPOINTS": f"{point}=drop_reply@1"})
    try:
        with pytest.raises(UnavailableError):
            await sync.compensation.run_once()
        await sync.fall_quiet()
        await sync.compensation.run_once()
    finally:
        uninstall_failpoints()
    order = await sync.desk.order(order_id)
    assert (order["status"], order["last_contiguous_sequence"]) == ("COMPLETED", 2)
    assert [event[:2] for event in await sources(sync)] == [(1, 1), (1, 2)]


async def test_evidence_is_translated_or_absent(sync: Sync) -> None:
    """The platform's rungs keep what they say; an order it never heard of has none."""
    assert await sync.client.get_evidence("unknown") is None
    rung = system_service_pb2.EvidenceRung(
        hop=4,
        title="Steps expanded",
        state=system_service_pb2.RUNG_STATE_DURABLE,
        store="control plane PostgreSQL",
        location="steps",
        summary="2 steps",
    )
    rung.durable_time.FromJsonString("2026-01-02T03:04:05Z")
    rung.disturbances.add(kind="replayed", description="twice")
    sync.platform.evidence = system_service_pb2.GetEvidenceResponse(rungs=[rung], verdict="Fine.")
    found = await sync.client.get_evidence("order")
    assert found is not None
    (read,) = found.rungs
    assert (found.verdict, read.hop, read.state, read.location) == ("Fine.", 4, "DURABLE", "steps")
    assert read.durable_at is not None
    assert read.durable_at.isoformat() == "2026-01-02T03:04:05+00:00"
    assert [one.kind for one in read.disturbances] == ["replayed"]


async def test_a_client_that_is_not_open_is_out_of_reach(platform: Platform) -> None:
    """Before its start and after its stop every call raises UnavailableError."""
    async with served(platform) as port, client_of(port) as client:
        await client.stop()
        with pytest.raises(UnavailableError):
            await client.current_run("any")
