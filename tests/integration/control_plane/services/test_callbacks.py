"""Callbacks of a whole replica to real endpoints: signed, in order, retried, switched off."""

import asyncio

from control_plane.limits import (
    CALLBACK_TIMEOUT_S,
    CALLBACKS_IN_FLIGHT_MAX,
    SILENT_IN_FLIGHT_MAX,
)
from tdp.control.v1 import application_service_pb2 as application_pb
from tdp.control.v1 import task_service_pb2 as pb
from tests.fixtures.eventually import eventually
from tests.integration.control_plane.replica import SECRET, Metadata, Replica
from tests.integration.control_plane.services.endpoint import (
    Endpoint,
    grpc_endpoint,
    http_endpoint,
    silent_endpoint,
)
from tests.integration.control_plane.services.errors import task_request


async def _canceled_task(replica: Replica, key: Metadata, name: str = "k") -> str:
    made = await replica.tasks.CreateTask(task_request(name), metadata=key)
    await replica.tasks.CancelTask(
        pb.CancelTaskRequest(idempotency_key=f"c-{name}", task_id=made.task_id), metadata=key
    )
    return made.execution_id


def _check_story(endpoint: Endpoint, execution_id: str) -> None:
    story = [one for one in endpoint.events if one["subject"] == execution_id]
    assert [one["data"]["sequence"] for one in story] == list(range(1, len(story) + 1))
    assert story[0]["type"] == "execution.created"
    assert story[-1]["data"]["status"] == "CANCELED"
    assert story[-1]["specversion"] == "1.0"
    assert story[-1]["data"]["external_ref"].startswith("order-")


async def test_events_arrive_signed_and_in_order_over_http(replica: Replica) -> None:
    """Each event of an execution is delivered once its predecessor was, from sequence 1 on."""
    async with http_endpoint() as endpoint:
        await replica.publish()
        _, key = await replica.register("shop", callback_url=endpoint.url)
        execution_id = await _canceled_task(replica, key)
        await endpoint.until("execution.canceled")

    _check_story(endpoint, execution_id)


async def test_events_arrive_signed_and_in_order_over_grpc(replica: Replica) -> None:
    """The very bytes that were signed arrive through CallbackService, after a refusal too."""
    async with grpc_endpoint() as endpoint:
        endpoint.answers = [503]
        await replica.publish()
        _, key = await replica.register("shop", callback_url=endpoint.url)
        execution_id = await _canceled_task(replica, key)
        await endpoint.until("execution.canceled")

    _check_story(endpoint, execution_id)
    assert endpoint.tries > len(endpoint.events)


async def test_a_failing_delivery_is_repeated_before_its_successors(replica: Replica) -> None:
    """A 500 and a redirect are tried again, and nothing overtakes them."""
    async with http_endpoint() as endpoint:
        endpoint.answers = [500, 302]
        await replica.publish()
        _, key = await replica.register("shop", callback_url=endpoint.url)
        execution_id = await _canceled_task(replica, key)
        await endpoint.until("execution.canceled")

    _check_story(endpoint, execution_id)
    assert endpoint.tries == len(endpoint.events) + 2


async def test_gone_switches_the_endpoint_off_until_it_is_set_again(replica: Replica) -> None:
    """A 410 holds every delivery; setting the endpoint again releases them all."""
    async with http_endpoint() as endpoint:
        endpoint.answers = [410]
        await replica.publish()
        application_id, key = await replica.register("shop", callback_url=endpoint.url)
        execution_id = await _canceled_task(replica, key)
        await endpoint.changed.wait()

        async def disabled() -> bool:
            shown = await replica.applications.GetApplication(
                application_pb.GetApplicationRequest(application_id=application_id), metadata=key
            )
            return shown.application.callback_disabled

        await eventually(disabled)
        tries_when_gone = endpoint.tries
        await replica.applications.SetCallbackEndpoint(
            application_pb.SetCallbackEndpointRequest(
                idempotency_key="again",
                application_id=application_id,
                callback_url=endpoint.url,
                callback_secret=SECRET,
            ),
            metadata=replica.admin,
        )
        await endpoint.until("execution.canceled")

    assert tries_when_gone == 1
    _check_story(endpoint, execution_id)


async def test_a_dead_endpoint_holds_up_nobody_else(replica: Replica) -> None:
    """While one application's endpoint refuses connections, another's events arrive."""
    async with http_endpoint() as endpoint:
        await replica.publish()
        _, dead = await replica.register("dead", callback_url="http://127.0.0.1:9/callbacks")
        _, key = await replica.register("shop", callback_url=endpoint.url)
        for number in range(20):
            await _canceled_task(replica, dead, f"dead-{number}")
        execution_id = await _canceled_task(replica, key, "alive")
        await endpoint.until("execution.canceled")

    _check_story(endpoint, execution_id)


async def test_an_endpoint_that_never_answers_delays_nobody(replica: Replica) -> None:
    """F24: with more events for a silent endpoint than the relay takes, others arrive at once."""
    async with http_endpoint() as endpoint, silent_endpoint() as silent:
        await replica.publish()
        _, stuck = await replica.register("stuck", callback_url=silent.url)
        _, key = await replica.register("shop", callback_url=endpoint.url)
        async with asyncio.TaskGroup() as group:
            for number in range(CALLBACKS_IN_FLIGHT_MAX + 32):
                request = task_request(f"stuck-{number}")
                group.create_task(_create(replica, stuck, request), name=f"stuck-{number}")
        await silent.until_tries(SILENT_IN_FLIGHT_MAX)
        async with asyncio.timeout(CALLBACK_TIMEOUT_S / 2):
            execution_id = await _canceled_task(replica, key, "alive")
            await endpoint.until("execution.canceled")

    _check_story(endpoint, execution_id)
    # Those that failed meanwhile were followed by a few that look whether it is back.
    assert silent.tries < 2 * SILENT_IN_FLIGHT_MAX


async def _create(replica: Replica, key: Metadata, request: pb.CreateTaskRequest) -> None:
    await replica.tasks.CreateTask(request, metadata=key)
