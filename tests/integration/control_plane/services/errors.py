"""Helpers of the service tests: calls that are refused, and the requests they repeat."""

from collections.abc import Awaitable
from typing import cast

import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tdp.control.v1 import task_service_pb2 as pb


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Await a call that must fail; return its code, its reason and its metadata."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    status = rpc_status.from_call(cast("grpc.Call", error.value))
    assert status is not None, "every error carries its details"
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "tdp"
    return error.value.code(), info.reason, dict(info.metadata)


def task_request(key: str, **changes: object) -> pb.CreateTaskRequest:
    """Return a good CreateTask request with some fields changed."""
    fields: dict[str, object] = {
        "idempotency_key": key,
        "name": "hello",
        "workflow_name": "two-steps",
        "input_json": '{"x":1}',
        "external_ref": f"order-{key}",
    }
    return pb.CreateTaskRequest(**(fields | changes))  # type: ignore[arg-type]
