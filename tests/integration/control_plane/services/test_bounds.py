"""What is too large, too deep or too many is refused before any work is done for it."""

import grpc
import grpc.aio
import pytest

from control_plane.limits import (
    DOCUMENT_BYTES_MAX,
    DOCUMENT_DEPTH_MAX,
    FILTER_CHARS_MAX,
    LABEL_COUNT_MAX,
    PAGE_SIZE_MAX,
    PAGE_TOKEN_CHARS_MAX,
)
from foundation.grpc.messages import MESSAGE_BYTES_MAX
from tdp.control.v1 import task_service_pb2 as pb
from tests.integration.control_plane.replica import Replica
from tests.integration.control_plane.services.errors import refused, task_request


async def test_every_bound_of_a_request_is_kept(replica: Replica) -> None:
    """Documents, their depth, labels, pages, tokens and filters each have a bound of their own."""
    await replica.publish()
    _, key = await replica.register("shop")
    deep = '{"x":1,"y":' + "[" * DOCUMENT_DEPTH_MAX + "]" * DOCUMENT_DEPTH_MAX + "}"
    large = '{"x":1,"y":"' + "z" * DOCUMENT_BYTES_MAX + '"}'
    many = {str(number): "x" for number in range(LABEL_COUNT_MAX + 1)}
    create, listing = replica.tasks.CreateTask, replica.tasks.ListTasks
    for call in (
        create(task_request("deep", input_json=deep), metadata=key),
        create(task_request("large", input_json=large), metadata=key),
        create(task_request("many", labels=many), metadata=key),
        create(task_request("k" * 201), metadata=key),
        listing(pb.ListTasksRequest(page_size=PAGE_SIZE_MAX + 1), metadata=key),
        listing(pb.ListTasksRequest(page_token="A" * (PAGE_TOKEN_CHARS_MAX + 1)), metadata=key),
        listing(pb.ListTasksRequest(filter="a" * (FILTER_CHARS_MAX + 1)), metadata=key),
    ):
        code, _, _ = await refused(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT

    assert not (await listing(pb.ListTasksRequest(), metadata=key)).tasks


async def test_messages_and_metadata_are_bounded_and_the_connection_survives(
    replica: Replica,
) -> None:
    """What the transport refuses costs that call only: the next one on the channel is served."""
    _, key = await replica.register("shop")
    request = task_request("k", input_json="x" * (MESSAGE_BYTES_MAX + 1))
    for call in (
        replica.tasks.CreateTask(request, metadata=key),
        replica.tasks.ListTasks(pb.ListTasksRequest(), metadata=(*key, ("x-large", "y" * 40_000))),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    await replica.tasks.ListTasks(pb.ListTasksRequest(), metadata=key)
