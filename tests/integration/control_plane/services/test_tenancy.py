"""Every RPC, asked by one tenant about another's things: nothing is told and nothing changes."""

import json
from collections.abc import AsyncIterator, Mapping
from string import Template
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from foundation.secrets import TokenKind, hash_token, new_token
from tdp.control.v1 import application_service_pb2 as application_pb
from tdp.control.v1 import schedule_service_pb2 as schedule_pb
from tdp.control.v1 import schedule_service_pb2_grpc as schedule_grpc
from tdp.control.v1 import task_service_pb2 as task_pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import Metadata, Replica, metadata_of
from tests.integration.control_plane.services.errors import task_request
from tests.integration.control_plane.services.tenancy import CASES, OWN, UNKNOWN
from tests.unit.docs.served import services

ATTEMPT: Final = "0190bbbb-0000-7000-8000-00000000000a"
# A business system serves these, with secrets of its own.
ELSEWHERE: Final = ("tdp.callback.v1.", "tdp.resource.v1.")
STATE: Final = """
select
    (select array_agg((task_id, current_run)::text order by task_id) from tasks)::text,
    (select array_agg((execution_id, status = 'CANCELING', paused, run)::text order by execution_id)
        from executions)::text,
    (select count(*) from timeline where actor not in ('engine', 'scheduler')),
    (select array_agg((schedule_id, version)::text order by schedule_id) from schedules)::text,
    (select array_agg(applications::text order by application_id) from applications)::text,
    (select array_agg(api_keys::text order by api_key_id) from api_keys)::text,
    (select count(*) from workflows where deprecated_at is null),
    (select array_agg((node_id, management)::text order by node_id) from nodes)::text,
    (select array_agg((attempt_id, run_deadline_at)::text) from attempts)::text,
    (select count(*) from callback_deliveries where redriven), (select count(*) from grants)
"""
METHODS: Final = {
    f"{service.full_name}/{method.name}": method
    for service in services().values()
    for method in service.methods
    if not service.full_name.startswith(ELSEWHERE)
}


def test_every_rpc_has_a_case() -> None:
    """An RPC that is added to the contract is refused here until it says who may see what."""
    assert set(CASES) == set(METHODS)


async def test_a_tenant_reaches_nothing_of_another(replica: Replica) -> None:
    """With a key of every scope, each RPC hides, denies, or answers without the other's ids."""
    ids = await _others_things(replica)
    application_id, _ = await replica.register("rival")
    intruder = await replica.key_of(
        application_id,
        application_pb.API_KEY_SCOPE_ADMIN,
        application_pb.API_KEY_SCOPE_SUBMIT,
        application_pb.API_KEY_SCOPE_READ,
    )
    before = await replica.plane.database.fetch(STATE)
    wrong = {}
    for name, case in CASES.items():
        status, answers = await _asked(replica, name, ids, intruder)
        # An error repeats what was asked for; an answer may not even do that.
        named = "" if status == OWN else json.dumps(case.request)
        told = [key for key, one in ids.items() if one in answers and f"${key}" not in named]
        if status != case.status or told:
            wrong[name] = (status, case.status, told)
    after = await replica.plane.database.fetch(STATE)

    assert wrong == {}
    assert before == after


async def test_without_a_valid_key_every_rpc_is_closed(replica: Replica) -> None:
    """No key, and one that was never registered, open nothing."""
    ids = await _others_things(replica)
    stranger = metadata_of(new_token(TokenKind.API_KEY))
    opened = {
        (name, status)
        for name in CASES
        for metadata in ((), stranger)
        if (status := (await _asked(replica, name, ids, metadata))[0]) != UNKNOWN
    }

    assert opened == set()


async def test_a_key_that_only_reads_changes_nothing(replica: Replica) -> None:
    """Every RPC that takes an idempotency key refuses the owner's key without its scope."""
    ids = await _others_things(replica)
    reader = await replica.key_of(ids["application"], application_pb.API_KEY_SCOPE_READ)
    before = await replica.plane.database.fetch(STATE)
    let_in = {}
    for name, method in METHODS.items():
        if "idempotency_key" in method.input_type.fields_by_name:
            status, _ = await _asked(replica, name, ids, reader)
            if status not in {"PERMISSION_DENIED", UNKNOWN}:
                let_in[name] = status

    assert let_in == {}
    assert await replica.plane.database.fetch(STATE) == before


async def _others_things(replica: Replica) -> Mapping[str, str]:
    """Give one tenant a task, a schedule and an attempt on a node; return all their ids."""
    await replica.publish()
    application_id, key = await replica.register("shop")
    made = await replica.tasks.CreateTask(task_request("k"), metadata=key)
    schedules = schedule_grpc.ScheduleServiceStub(replica.channel)
    scheduled = await schedules.CreateSchedule(
        schedule_pb.CreateScheduleRequest(
            idempotency_key="s",
            name="nightly",
            spec=schedule_pb.ScheduleSpec(
                cron="0 0 1 1 *",
                overlap_policy=schedule_pb.OVERLAP_POLICY_SKIP,
                task=schedule_pb.ScheduledTask(
                    name="n", workflow_name="two-steps", input_json='{"x":1}'
                ),
            ),
        ),
        metadata=key,
    )
    node_id = replica.plane.ids.new_id()
    database = replica.plane.database
    await database.fetch(
        "insert into nodes (node_id, name, credential_sha256) values ($1, 'n', $2)",
        node_id,
        hash_token(new_token(TokenKind.NODE)),
    )
    await database.fetch(
        """
        insert into attempts (attempt_id, execution_id, step_key, item_index, number, task_id,
            application_id, node_id, lease_version, lease_expires_at, status)
        values ($1, $2, 'x', -1, 1, $3, $4, $5, 1, tdp_now() + interval '1 hour', 'RUNNING')
        """,
        ATTEMPT,
        made.execution_id,
        made.task_id,
        application_id,
        node_id,
    )
    await _settled(replica, made.execution_id, key)
    return {
        "application": application_id,
        "task": made.task_id,
        "execution": made.execution_id,
        "schedule": scheduled.schedule.schedule_id,
        "attempt": ATTEMPT,
        "node": node_id,
    }


async def _settled(replica: Replica, execution_id: str, key: Metadata) -> None:
    """Wait until the engine has done all that it can do for the task: nothing runs its step."""
    request = task_pb.GetExecutionRequest(execution_id=execution_id)

    async def waits() -> bool:
        shown = await replica.tasks.GetExecution(request, metadata=key)
        return bool(shown.execution.waiting_for)

    await eventually(waits)


async def _asked(
    replica: Replica, name: str, ids: Mapping[str, str], metadata: Metadata
) -> tuple[str, str]:
    """Call an RPC by its name; return its status and all that it answered as text."""
    method = METHODS[name]
    filled = Template(json.dumps(CASES[name].request)).safe_substitute(ids)
    request = ParseDict(json.loads(filled), GetMessageClass(method.input_type)())
    try:
        answers = [str(one) async for one in _answers(replica.channel, method, request, metadata)]
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    return OWN, "".join(answers)


async def _answers(
    channel: grpc.aio.Channel, method: MethodDescriptor, request: Message, metadata: Metadata
) -> AsyncIterator[Message]:
    path = f"/{method.containing_service.full_name}/{method.name}"
    reading = GetMessageClass(method.output_type).FromString
    writing = type(request).SerializeToString
    requests: Any = iter([request]) if method.client_streaming else request
    if method.client_streaming:
        call: Any = channel.stream_stream(path, writing, reading)
    elif method.server_streaming:
        call = channel.unary_stream(path, writing, reading)
    else:
        yield await channel.unary_unary(path, writing, reading)(requests, metadata=metadata)
        return
    async for answer in call(requests, metadata=metadata):
        yield answer
