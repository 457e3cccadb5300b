"""What operators do with nodes, over real gRPC: drain, place, remove."""

import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from control_plane.core.executions.attempt_state import StopReason
from foundation.errors import ErrorCode, TdpError
from foundation.grpc.status import from_rpc_error
from tdp.control.v1 import mutation_pb2
from tdp.control.v1 import node_admin_service_pb2 as pb
from tdp.control.v1 import node_admin_service_pb2_grpc as pb_grpc
from tests.integration.control_plane.nodes.replica import Replica, node_of, running
from tests.integration.control_plane.nodes.world import IDS, World, stop_report

AnswerT = TypeVar("AnswerT")
Administered = tuple[Replica, pb_grpc.NodeAdminServiceStub]
OPERATOR = (("authorization", "Bearer operator"),)
CREATED, REPLAYED = (
    mutation_pb2.MUTATION_OUTCOME_CREATED,
    mutation_pb2.MUTATION_OUTCOME_REPLAYED,
)


@asynccontextmanager
async def _administering(
    world: World,
) -> AsyncIterator[Administered]:
    async with running(world) as replica, grpc.aio.insecure_channel(replica.address) as channel:
        yield replica, pb_grpc.NodeAdminServiceStub(channel)


async def _answer(call: Awaitable[AnswerT]) -> AnswerT:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


async def _refusal(call: Awaitable[object]) -> tuple[ErrorCode, str]:
    with pytest.raises(TdpError) as caught:
        await _answer(call)
    return caught.value.code, caught.value.reason


def _drain(node_id: str, **changes: Any) -> pb.DrainNodeRequest:
    fields: dict[str, Any] = {
        "idempotency_key": "d",
        "node_id": node_id,
        "grace_period": Duration(seconds=60),
        "reason": "new kernel",
    }
    return pb.DrainNodeRequest(**(fields | changes))


async def test_a_drain_reaches_its_node_and_is_taken_back_by_an_uncordon(world: World) -> None:
    """DRAIN with its grace, once per key; then UNDRAIN, and only where there was a drain."""
    node_id = await world.add_node()
    async with _administering(world) as (replica, admin), node_of(replica, node_id) as node:
        await node.hello()
        drained = await _answer(admin.DrainNode(_drain(node_id), metadata=OPERATOR))
        again = await _answer(admin.DrainNode(_drain(node_id), metadata=OPERATOR))
        (command,) = (await node.hear_of("commands")).commands
        assert command.WhichOneof("order") == "drain"
        assert command.drain.grace_period == Duration(seconds=60)
        assert (drained.outcome, again.outcome) == (CREATED, REPLAYED)
        shown = again.node
        assert (shown.management, shown.managed_by, shown.management_reason) == (
            pb.NODE_MANAGEMENT_DRAINING,
            "operator:op",
            "new kernel",
        )
        assert shown.HasField("drain_deadline_time")

        request = pb.UncordonNodeRequest(idempotency_key="u1", node_id=node_id)
        await _answer(admin.UncordonNode(request, metadata=OPERATOR))
        request.idempotency_key = "u2"
        back = await _answer(admin.UncordonNode(request, metadata=OPERATOR))
        (command,) = (await node.hear_of("commands")).commands
        assert command.WhichOneof("order") == "undrain"
        assert not back.node.HasField("drain_deadline_time")
    assert await world.rows("select kind, sequence from node_commands order by sequence") == [
        ("DRAIN", 1),
        ("UNDRAIN", 2),
    ]
    assert (await world.fetch_node(node_id))["last_command_sequence"] == 2


async def test_what_a_drain_stopped_is_tried_again_without_blame(world: World) -> None:
    """The node's report costs a loss, not one of the step's own failures."""
    node_id = await world.add_node()
    attempt = await world.new_attempt(node_id)
    async with _administering(world) as (replica, admin):
        await _answer(admin.DrainNode(_drain(node_id), metadata=OPERATOR))
        await replica.sessions.events([stop_report(attempt, StopReason.DRAIN)])
    step = await world.fetch_step(attempt)
    assert (step["status"], step["failure_count"], step["loss_count"]) == ("READY", 0, 1)


async def test_placement_is_replaced_as_a_whole(world: World) -> None:
    """Labels, weight and group are those of the request; capacity is announced; replays answer."""
    node_id = await world.add_node()
    request = pb.SetNodePlacementRequest(
        idempotency_key="p", node_id=node_id, labels={"gpu": "a100"}, weight=250, group="fast"
    )
    async with _administering(world) as (replica, admin):
        placed = await _answer(admin.SetNodePlacement(request, metadata=OPERATOR))
        assert await replica.hints.capacity.wait(1.0)
        again = await _answer(admin.SetNodePlacement(request, metadata=OPERATOR))
        request.weight = 1
        reused = await _refusal(admin.SetNodePlacement(request, metadata=OPERATOR))
    assert (dict(placed.node.labels), placed.node.weight, placed.node.group) == (
        {"gpu": "a100"},
        250,
        "fast",
    )
    assert (placed.outcome, again.outcome) == (CREATED, REPLAYED)
    assert reused == (ErrorCode.ALREADY_EXISTS, "IDEMPOTENCY_KEY_REUSED")


async def test_a_node_is_removed_only_empty_unless_its_attempts_may_be_lost(world: World) -> None:
    """Refused while it holds work; else that is LOST, asked for again, and the session ends."""
    node_id = await world.add_node()
    other_id = await world.add_node("other")
    async with _administering(world) as (replica, admin), node_of(replica, node_id) as node:
        await node.hello()
        held, once = await world.new_attempt(node_id), await world.new_attempt(node_id, "once")
        elsewhere = await world.new_attempt(other_id)
        request = pb.RemoveNodeRequest(idempotency_key="r", node_id=node_id)
        busy = await _refusal(admin.RemoveNode(request, metadata=OPERATOR))
        assert busy == (ErrorCode.FAILED_PRECONDITION, "NODE_BUSY")
        request.loses_attempts = True
        removed = await _answer(admin.RemoveNode(request, metadata=OPERATOR))
        again = await _answer(admin.RemoveNode(request, metadata=OPERATOR))
        assert (removed.outcome, again.outcome) == (CREATED, REPLAYED)
        await node.heartbeat(1, held, once)
        assert (await node.ended_with()).reason == "SESSION_REPLACED"
        request.idempotency_key = "r2"
        assert await _refusal(admin.RemoveNode(request, metadata=OPERATOR)) == (
            ErrorCode.NOT_FOUND,
            "NODE_UNKNOWN",
        )
        assert sorted(replica.hints.engine.take(9)) == sorted(
            [held.execution_id, once.execution_id]
        )
        assert replica.hints.scheduler.pending
    row = await world.fetch_attempt(held)
    assert (row["status"], json.loads(row["failure"])["reason"]) == ("LOST", "NODE_REMOVED")
    assert (await world.fetch_step(held))["status"] == "READY"
    assert (await world.fetch_step(once))["status"] == "FAILED"
    assert (await world.fetch_attempt(elsewhere))["status"] == "DISPATCHED"
    assert await world.rows("select name from nodes") == [("other",)]
    assert await world.value("select count(*) from node_capabilities") == 0
    open_commands = "select node_id from node_commands where status in ('PENDING', 'SENT')"
    assert [str(row[0]) for row in await world.rows(open_commands)] == [other_id]


@pytest.mark.parametrize("named", ["unknown", "malformed"])
async def test_a_node_that_is_not_there_is_not_found(world: World, named: str) -> None:
    """Each of the three names it, and a wrong id is INVALID_ARGUMENT; nothing is remembered."""
    node_id = IDS.new_id() if named == "unknown" else "nonsense"
    code = ErrorCode.NOT_FOUND if named == "unknown" else ErrorCode.INVALID_ARGUMENT
    async with _administering(world) as (_, admin):
        for call in (
            admin.DrainNode(_drain(node_id), metadata=OPERATOR),
            admin.SetNodePlacement(
                pb.SetNodePlacementRequest(idempotency_key="p", node_id=node_id), metadata=OPERATOR
            ),
            admin.RemoveNode(
                pb.RemoveNodeRequest(idempotency_key="r", node_id=node_id), metadata=OPERATOR
            ),
        ):
            assert (await _refusal(call))[0] is code
    assert await world.value("select count(*) from idempotency_records") == 0


async def test_bounds_are_named(world: World) -> None:
    """A grace over a week, a long reason, and labels and weights out of range are refused."""
    node_id = await world.add_node()
    placements: list[dict[str, Any]] = [
        {"labels": {f"l{number}": "v" for number in range(65)}},
        {"labels": {"": "v"}},
        {"labels": {"k": "v" * 64}},
        {"weight": 1_000_001},
        {"group": "g" * 101},
    ]
    drains: list[dict[str, Any]] = [
        {"grace_period": Duration(seconds=7 * 86_400 + 1)},
        {"grace_period": Duration(seconds=-1)},
        {"reason": "r" * 501},
        {"idempotency_key": ""},
    ]
    async with _administering(world) as (_, admin):
        calls: list[Awaitable[object]] = [
            admin.SetNodePlacement(
                pb.SetNodePlacementRequest(idempotency_key="p", node_id=node_id, **one),
                metadata=OPERATOR,
            )
            for one in placements
        ]
        calls += [admin.DrainNode(_drain(node_id, **one), metadata=OPERATOR) for one in drains]
        refusals = [await _refusal(call) for call in calls]
    assert {code for code, _ in refusals} == {ErrorCode.INVALID_ARGUMENT}
