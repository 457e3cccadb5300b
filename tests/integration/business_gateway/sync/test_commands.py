"""Commands reach the platform once, whatever is lost on the way; F01, F02, F09."""

import json

import pytest

from business_gateway.adapters.outbound.postgres.command_store import PostgresCommandOrders
from business_gateway.core.callbacks.envelope import parse_envelope
from business_gateway.core.callbacks.ports import Arrival
from business_gateway.sync_failpoints import SYNC_FAILPOINTS
from foundation.errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    TdpError,
    UnauthenticatedError,
    UnavailableError,
)
from foundation.failpoints import install_failpoints, uninstall_failpoints
from foundation.postgres.pool import Database
from tdp.control.v1 import task_service_pb2 as pb
from tests.integration.business_gateway.sync.conftest import Sync, replica
from tests.integration.business_gateway.sync.platform import APPLICATION_ID, Platform, served


async def take(sync: Sync, envelope: str) -> None:
    """Let an event arrive as a callback."""
    await sync.inbox.add(Arrival(parse_envelope(envelope.encode(), APPLICATION_ID)))


async def submitted(sync: Sync) -> str:
    """An order that the platform has taken."""
    order_id = await sync.desk.new_order()
    await sync.desk.submit(order_id)
    await sync.pump.run_once()
    return order_id


async def test_submit_hands_the_order_over_and_makes_it_processing(sync: Sync) -> None:
    """The task carries the order's id, key, workflow and input; the order gets its ids."""
    order_id = await sync.desk.new_order()
    command_id = await sync.desk.submit(order_id)
    await sync.pump.run_once()

    (request,) = sync.platform.asked(pb.CreateTaskRequest)
    assert request.idempotency_key == f"submit:{order_id}"
    assert (request.external_ref, request.name) == (order_id, "Photos")
    assert (request.workflow_name, request.workflow_version) == ("archive-clean", "1")
    assert json.loads(request.input_json)["collection_ref"] == f"collection:{order_id}"
    assert dict(request.labels) == {"source": "business-gateway"}
    order = await sync.desk.order(order_id)
    assert (order["status"], order["run"], order["version"]) == ("PROCESSING", 1, 2)
    assert str(order["task_id"]) in sync.platform.runs
    assert (await sync.desk.command(command_id))["status"] == "PUBLISHED"
    assert sync.heard.announced == [order_id]


@pytest.mark.parametrize(
    "point", ["gateway.submit.after", "command.publish.after", "command.mark.before"]
)
async def test_a_lost_answer_is_asked_for_again_with_the_same_key(sync: Sync, point: str) -> None:
    """F02: the second SUBMIT is a replay, so there is one task and the order has its ids."""
    order_id = await sync.desk.new_order()
    command_id = await sync.desk.submit(order_id)
    install_failpoints(SYNC_FAILPOINTS, {"TDP_FAILPOINTS": f"{point}=drop_reply@1"})
    try:
        await sync.pump.run_once()
        await sync.make_due()
        sync.clock.advance(6.0)
        await sync.pump.run_once()
    finally:
        uninstall_failpoints()
    requests = sync.platform.asked(pb.CreateTaskRequest)
    assert {one.idempotency_key for one in requests} == {f"submit:{order_id}"}
    assert len(sync.platform.runs) == 1
    assert (await sync.desk.order(order_id))["status"] == "PROCESSING"
    assert (await sync.desk.command(command_id))["status"] == "PUBLISHED"


async def test_a_callback_before_the_answer_keeps_what_it_said(sync: Sync) -> None:
    """The event finds its order by external_ref; the late answer fills only empty ids."""
    order_id = await sync.desk.new_order()
    await sync.desk.submit(order_id)
    execution = sync.platform.begin(order_id)
    sync.platform.submitted[f"submit:{order_id}"] = pb.CreateTaskResponse(
        task_id=execution.task_id, execution_id=execution.execution_id
    )
    await take(sync, execution.envelopes[0])
    await take(sync, sync.platform.tell(execution, "SUCCEEDED", 100, output={"n": 1}))
    before = await sync.desk.order(order_id)
    await sync.pump.run_once()
    after = await sync.desk.order(order_id)
    assert before["status"] == after["status"] == "COMPLETED"
    assert after["version"] == before["version"]
    assert str(after["execution_id"]) == execution.execution_id


@pytest.mark.parametrize(
    "refusal",
    [
        InvalidArgumentError("the input has no archive", reason="INPUT_INVALID"),
        NotFoundError("no such workflow"),
        AlreadyExistsError("another request", existing_id="7"),
        FailedPreconditionError("the application is disabled"),
        PermissionDeniedError("the key lacks the scope submit"),
    ],
)
async def test_a_final_refusal_makes_the_order_need_attention(
    sync: Sync, refusal: TdpError
) -> None:
    """The row is DEAD and the order says why, both at once."""
    order_id = await sync.desk.new_order()
    command_id = await sync.desk.submit(order_id)
    sync.platform.refusals["CreateTask"].append(refusal)
    await sync.pump.run_once()
    command, order = await sync.desk.command(command_id), await sync.desk.order(order_id)
    assert command["status"] == "DEAD"
    assert (order["status"], order["change_kind"]) == ("NEEDS_ATTENTION", "SUBMIT_REFUSED")
    assert refusal.message in order["diagnosis"]
    assert refusal.reason in json.loads(order["diagnosis_json"])["error"]
    assert order["completed_at"] is not None
    assert sync.heard.announced == [order_id]


@pytest.mark.parametrize(
    ("refusal", "attempts"),
    [
        (ResourceExhaustedError("too many queued", retry_delay_s=33.0), 1),
        (DeadlineExceededError("slow"), 1),
        (UnauthenticatedError("unknown key"), 1),
    ],
)
async def test_other_failures_are_tried_again(sync: Sync, refusal: TdpError, attempts: int) -> None:
    """They count an attempt, back off, and leave the order as it is; then it succeeds."""
    order_id = await sync.desk.new_order()
    command_id = await sync.desk.submit(order_id)
    sync.platform.refusals["CreateTask"].append(refusal)
    await sync.pump.run_once()
    command = await sync.desk.command(command_id)
    assert (command["status"], command["attempts"]) == ("FAILED", attempts)
    assert refusal.reason in command["last_error"]
    wait_s = (command["available_at"] - command["created_at"]).total_seconds()
    assert wait_s >= (refusal.retry_delay_s or 2.0)
    assert (await sync.desk.order(order_id))["status"] == "SUBMITTING"
    await sync.make_due()
    await sync.pump.run_once()
    assert (await sync.desk.order(order_id))["status"] == "PROCESSING"


async def test_an_unreachable_platform_counts_nothing_and_frees_all_at_once(
    gateway_database: Database, platform: Platform
) -> None:
    """Down: held without an attempt, one probe; up again: the first success makes all due."""
    async with served(platform) as port:
        pass
    async with replica(gateway_database, platform, port) as sync:
        orders = [await sync.desk.new_order() for _ in range(5)]
        commands = [await sync.desk.submit(order_id) for order_id in orders]
        await sync.pump.run_once()
        rows = [await sync.desk.command(one) for one in commands]
        assert {(row["status"], row["attempts"], row["held"]) for row in rows} == {
            ("FAILED", 0, True)
        }
        lost = sync.pump.destination_lost
        assert lost
        await sync.make_due()
        sync.clock.advance(6.0)
        async with served(platform, port):
            await sync.client.stop()
            await sync.client.start()
            assert (await sync.pump.run_once()).claimed == 1
            assert not sync.pump.destination_lost
            assert (await sync.pump.run_once()).claimed == 4
        statuses = {(await sync.desk.order(one))["status"] for one in orders}
        assert statuses == {"PROCESSING"}


async def test_a_status_of_unavailable_counts_nothing_either(sync: Sync) -> None:
    """A platform that answers UNAVAILABLE is out of reach as well."""
    command_id = await sync.desk.submit(await sync.desk.new_order())
    # The channel itself tries four times.
    sync.platform.refusals["CreateTask"] += [UnavailableError("starting")] * 4
    await sync.pump.run_once()
    assert (await sync.desk.command(command_id))["attempts"] == 0
    assert sync.pump.destination_lost


async def test_a_cancel_behind_a_refused_submit_completes_here(sync: Sync) -> None:
    """The platform has nothing to cancel: the order is CANCELED, the platform is not asked."""
    order_id = await sync.desk.new_order()
    await sync.desk.submit(order_id)
    cancel_id = await sync.desk.add_command(order_id, "CANCEL", run=0, reason="")
    await sync.desk.set_order(order_id, status="CANCELING")
    sync.platform.refusals["CreateTask"].append(NotFoundError("no such workflow"))
    await sync.pump.run_once()
    assert (await sync.desk.order(order_id))["status"] == "NEEDS_ATTENTION"
    await sync.pump.run_once()
    assert (await sync.desk.order(order_id))["status"] == "CANCELED"
    assert (await sync.desk.command(cancel_id))["status"] == "PUBLISHED"
    assert not sync.platform.asked(pb.CancelTaskRequest)


async def test_a_cancel_waits_for_a_submit_that_was_driven_again(sync: Sync) -> None:
    """A re-driven SUBMIT blocks nothing, yet it goes first; then the cancel finds its task."""
    order_id = await sync.desk.new_order()
    submit_id = await sync.desk.submit(order_id)
    cancel_id = await sync.desk.add_command(order_id, "CANCEL", run=0, reason="")
    await sync.desk.database.fetch(
        "update command_outbox set redriven = true, available_at = tdp_now() + interval '1 hour'"
        " where outbox_id = $1",
        submit_id,
    )
    await sync.pump.run_once()
    cancel = await sync.desk.command(cancel_id)
    assert (cancel["status"], cancel["attempts"]) == ("FAILED", 0)
    await sync.desk.database.fetch("update command_outbox set available_at = tdp_now()")
    await sync.pump.run_once()
    await sync.make_due()
    await sync.pump.run_once()
    assert (await sync.desk.command(cancel_id))["status"] == "PUBLISHED"
    assert len(sync.platform.asked(pb.CancelTaskRequest)) == 1


async def test_a_cancel_behind_a_quarantined_submit_waits_for_people(sync: Sync) -> None:
    """Nobody knows whether the platform took the order, so nothing is decided here."""
    order_id = await sync.desk.new_order()
    await sync.desk.submit(order_id)
    await sync.desk.database.fetch("update command_outbox set status = 'QUARANTINED'")
    cancel_id = await sync.desk.add_command(order_id, "CANCEL", run=0, reason="")
    await sync.pump.run_once()
    cancel = await sync.desk.command(cancel_id)
    assert (cancel["status"], cancel["attempts"]) == ("FAILED", 1)
    assert "drive it again" in cancel["last_error"]
    assert (await sync.desk.order(order_id))["status"] == "SUBMITTING"


async def test_an_order_that_may_still_be_submitted_is_not_closed(sync: Sync) -> None:
    """Only under a DEAD SUBMIT, looked at in the very statement that closes."""
    orders = PostgresCommandOrders(sync.desk.database)
    order_id = await sync.desk.new_order()
    await sync.desk.submit(order_id)
    assert not await orders.close_unsubmitted(order_id)
    await sync.desk.database.fetch("update command_outbox set status = 'DEAD'")
    assert await orders.close_unsubmitted(order_id)
    assert not await orders.close_unsubmitted(order_id)
    assert (await sync.desk.order(order_id))["change_kind"] == "CLOSED"


@pytest.mark.parametrize(("run", "platform_status"), [(1, "CANCELING"), (7, "RUNNING")])
async def test_a_refused_cancel_that_no_longer_matters_changes_nothing(
    sync: Sync, run: int, platform_status: str
) -> None:
    """The platform cancels already, or the refused cancel was another run's."""
    order_id = await submitted(sync)
    await sync.desk.set_order(order_id, "CANCELING", platform_status)
    await sync.desk.add_command(order_id, "CANCEL", run=run, reason="")
    sync.platform.refusals["CancelTask"].append(PermissionDeniedError("no"))
    before = await sync.desk.order(order_id)
    await sync.pump.run_once()
    assert await sync.desk.order(order_id) == before


async def test_a_submit_driven_again_after_a_local_cancel_submits_nothing(sync: Sync) -> None:
    """An order that was CANCELED here is not handed over by an operator's redrive."""
    order_id = await sync.desk.new_order()
    submit_id = await sync.desk.submit(order_id)
    await sync.desk.set_order(order_id, status="CANCELED")
    await sync.desk.database.fetch("update command_outbox set redriven = true")
    await sync.pump.run_once()
    assert (await sync.desk.command(submit_id))["status"] == "DEAD"
    assert (await sync.desk.order(order_id))["status"] == "CANCELED"
    assert not sync.platform.runs


async def test_cancel_and_rerun_name_their_task_run_and_key(sync: Sync) -> None:
    """A cancelled run is run again; the answer makes run 2 current at once."""
    order_id = await submitted(sync)
    cancel_id = await sync.desk.add_command(order_id, "CANCEL", run=1, reason="too late")
    await sync.pump.run_once()
    (cancel,) = sync.platform.asked(pb.CancelTaskRequest)
    task_id = str((await sync.desk.order(order_id))["task_id"])
    assert (cancel.task_id, cancel.run, cancel.reason) == (task_id, 1, "too late")
    assert cancel.idempotency_key == f"cancel:{cancel_id}"
    first = sync.platform.runs[task_id][0]
    sync.platform.tell(first, "CANCELED")
    for envelope in first.envelopes:
        await take(sync, envelope)
    assert (await sync.desk.order(order_id))["status"] == "CANCELED"

    rerun_id = await sync.desk.add_command(
        order_id, "RERUN", run=1, mode="FROM_SCRATCH", reason="again"
    )
    await sync.desk.set_order(order_id, status="SUBMITTING", platform_status="")
    await sync.pump.run_once()
    (rerun,) = sync.platform.asked(pb.RerunTaskRequest)
    assert (rerun.task_id, rerun.run, rerun.mode) == (task_id, 1, pb.RERUN_MODE_FROM_SCRATCH)
    assert rerun.idempotency_key == f"rerun:{rerun_id}"
    order = await sync.desk.order(order_id)
    assert (order["status"], order["run"]) == ("PROCESSING", 2)
    assert str(order["execution_id"]) == sync.platform.runs[task_id][1].execution_id
    assert (order["last_contiguous_sequence"], order["completed_at"]) == (0, None)


@pytest.mark.parametrize(
    ("kind", "method", "status"),
    [("CANCEL", "CancelTask", "CANCELING"), ("RERUN", "RerunTask", "SUBMITTING")],
)
async def test_a_refused_cancel_or_rerun_is_shown_until_the_platform_says_more(
    sync: Sync, kind: str, method: str, status: str
) -> None:
    """The order needs attention; the end of its run still comes through."""
    order_id = await submitted(sync)
    await sync.desk.set_order(order_id, status=status)
    await sync.desk.add_command(order_id, kind, run=1, mode="FROM_SCRATCH", reason="")
    sync.platform.refusals[method].append(PermissionDeniedError("the key lacks the scope"))
    await sync.pump.run_once()
    order = await sync.desk.order(order_id)
    assert (order["status"], order["change_kind"]) == ("NEEDS_ATTENTION", f"{kind}_REFUSED")
    execution = sync.platform.runs[str(order["task_id"])][0]
    await take(sync, sync.platform.tell(execution, "SUCCEEDED", 100))
    assert (await sync.desk.order(order_id))["status"] == "COMPLETED"


async def test_a_refusal_that_the_platforms_word_outran_changes_nothing(sync: Sync) -> None:
    """A cancel refused after the order had completed leaves it COMPLETED."""
    order_id = await submitted(sync)
    task_id = str((await sync.desk.order(order_id))["task_id"])
    await sync.desk.add_command(order_id, "CANCEL", run=1, reason="")
    await take(sync, sync.platform.tell(sync.platform.runs[task_id][0], "SUCCEEDED", 100))
    before = await sync.desk.order(order_id)
    sync.platform.refusals["CancelTask"].append(NotFoundError("gone"))
    await sync.pump.run_once()
    assert await sync.desk.order(order_id) == before


async def test_what_cannot_be_read_or_never_was_submitted_is_given_up(sync: Sync) -> None:
    """A broken payload and a RERUN without a task are DEAD with the reason."""
    order_id = await sync.desk.new_order()
    broken_id = await sync.desk.add_command(order_id, "SUBMIT", nothing=True)
    await sync.desk.database.fetch("update command_outbox set payload = 'no json'")
    await sync.pump.run_once()
    rerun_id = await sync.desk.add_command(order_id, "RERUN", run=1, mode="FROM_SCRATCH", reason="")
    await sync.pump.run_once()
    for command_id, why in ((broken_id, "cannot be read"), (rerun_id, "never reached")):
        command = await sync.desk.command(command_id)
        assert command["status"] == "DEAD"
        assert why in command["last_error"]
