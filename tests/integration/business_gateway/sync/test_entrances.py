"""Deliveries over HTTP and gRPC: signed, checked, stored, then answered; F02, F04, F10, F23."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest

from business_gateway.adapters.inbound.rest_app import RestParts, create_app
from business_gateway.adapters.inbound.rest_server import RestServer, RestServerConfig
from business_gateway.core.callbacks.application import CallbackRules
from business_gateway.core.orders.change_hub import OrderChangeHub
from business_gateway.core.orders.domain import OrderId
from business_gateway.settings import GatewaySettings
from business_gateway.sync_bootstrap import build_sync
from business_gateway.sync_failpoints import SYNC_FAILPOINTS
from foundation.clock import SystemClock
from foundation.errors import InvalidArgumentError, ResourceExhaustedError, UnavailableError
from foundation.failpoints import install_failpoints, uninstall_failpoints
from foundation.grpc.channel import ChannelConfig, call_unary, open_channel
from foundation.grpc.interceptors import server_interceptors
from foundation.grpc.server import GrpcServer, ServerConfig
from foundation.ids import SystemIds
from foundation.lifecycle import StopRequest, Supervision, run_services
from foundation.postgres.pool import Database
from foundation.principals import Principal
from foundation.signatures import SigningSecret, delivery_headers
from tdp.callback.v1 import callback_service_pb2, callback_service_pb2_grpc
from tests.integration.business_gateway.sync.desk import Desk
from tests.integration.business_gateway.sync.platform import (
    API_KEY,
    APPLICATION_ID,
    Execution,
    Platform,
    served,
)

CURRENT, PREVIOUS = SigningSecret(b"c" * 32), SigningSecret(b"p" * 32)
STRANGE = SigningSecret(b"x" * 32)


class NobodyAuthenticator:
    """Refuses every bearer token: callbacks must not need one."""

    async def authenticate(self, method: str, token: str) -> Principal:
        raise AssertionError(f"{method} asked for a token")


@dataclass
class Gate:
    """A running half of the gateway, with both entrances."""

    desk: Desk
    platform: Platform
    changes: OrderChangeHub
    http: aiohttp.ClientSession
    stub: callback_service_pb2_grpc.CallbackServiceStub
    commands_added: Any

    async def post(
        self,
        body: bytes,
        secret: SigningSecret = CURRENT,
        *,
        skew_s: int = 0,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        signed = signature(body, secret, skew_s) if headers is None else headers
        async with self.http.post("/callbacks", data=body, headers=signed) as answer:
            return answer.status, await answer.json(content_type=None)

    async def deliver(
        self, body: bytes, secret: SigningSecret = CURRENT
    ) -> callback_service_pb2.DeliverEventResponse:
        return await call_unary(
            self.stub.DeliverEvent,
            callback_service_pb2.DeliverEventRequest(body=body),
            timeout_s=10.0,
            metadata=tuple(signature(body, secret, 0).items()),
        )

    async def order_when(self, order_id: str, status: str) -> dict[str, Any]:
        """The order once it has a status, looked at whenever it was announced."""
        with self.changes.watch(OrderId(order_id)) as wakeup:
            async with asyncio.timeout(20.0):
                while (order := await self.desk.order(order_id))["status"] != status:
                    await wakeup.wait()
        return order


def signature(body: bytes, secret: SigningSecret, skew_s: int) -> dict[str, str]:
    at_s = int(SystemClock().now().timestamp()) + skew_s
    return delivery_headers(body, secret, event_id="any", at_s=at_s)


@asynccontextmanager
async def gate_of(database: Database, platform: Platform, **changed: object) -> AsyncIterator[Gate]:
    async with served(platform) as port:
        settings = GatewaySettings(**{**_settings(port), **changed})  # type: ignore[arg-type] # checked by pydantic
        changes, clock = OrderChangeHub(), SystemClock()
        ids = SystemIds(clock)
        parts = build_sync(settings, database, ids, clock, changes)
        app = create_app(RestParts(parts.routers, ids, 1024, parts.body_bytes_max))
        rest = RestServer(app, RestServerConfig(), changes.close)
        interceptors = server_interceptors(
            ids=ids, clock=clock, authenticator=NobodyAuthenticator(),
            open_methods=parts.open_methods,
        )  # fmt: skip
        grpc_server = GrpcServer(ServerConfig(stop_grace_s=0.0), parts.grpc_services, interceptors)
        stop, ready = StopRequest(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            services = (*parts.services, grpc_server, rest)
            group.create_task(
                run_services(services, stop, Supervision(on_ready=ready.set)), name="gate"
            )
            await ready.wait()
            channel = open_channel(ChannelConfig(f"127.0.0.1:{grpc_server.port}", retries=False))
            async with channel, aiohttp.ClientSession(f"http://127.0.0.1:{rest.port}") as http:
                stub = callback_service_pb2_grpc.CallbackServiceStub(channel)
                yield Gate(
                    Desk(database), platform, changes, http, stub, parts.commands.commands_added
                )
            stop.make("the test ends")


def _settings(port: int) -> dict[str, object]:
    return {
        "database_dsn": "unused",
        "api_key_sha256": "0" * 64,
        "application_id": APPLICATION_ID,
        "control_plane_address": f"127.0.0.1:{port}",
        "control_plane_api_key": API_KEY,
        "provider_secret": "provider-secret-of-the-tests",
        "callback_secret_current": CURRENT.text,
        "callback_secret_previous": PREVIOUS.text,
        "s3_endpoint_url": "unused",
        "s3_access_key": "unused",
        "s3_secret_key": "unused",
        "s3_bucket": "unused",
        "quiet_order_s": 600.0,
    }


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
async def gate(gateway_database: Database, platform: Platform) -> AsyncIterator[Gate]:
    async with gate_of(gateway_database, platform) as opened:
        yield opened


async def begun(gate: Gate) -> tuple[str, Execution]:
    """An order, and an execution for it that the gateway has not heard of."""
    order_id = await gate.desk.new_order()
    return order_id, gate.platform.begin(order_id)


async def test_a_signed_event_moves_its_order_and_a_repeat_does_not(gate: Gate) -> None:
    """200 with duplicate false, then true; over either entrance it is the same event."""
    order_id, execution = await begun(gate)
    body = execution.envelopes[0].encode()
    assert await gate.post(body) == (200, {"duplicate": False})
    assert await gate.post(body) == (200, {"duplicate": True})
    assert (await gate.deliver(body)).duplicate
    order = await gate.desk.order(order_id)
    assert (order["status"], order["version"]) == ("PROCESSING", 2)
    _, _, inbox = await gate.desk.everything()
    assert [row["arrivals"] for row in inbox] == [3]

    end = gate.platform.tell(execution, "SUCCEEDED", 100).encode()
    assert not (await gate.deliver(end)).duplicate
    assert (await gate.desk.order(order_id))["status"] == "COMPLETED"


async def test_both_secrets_of_a_rotation_are_taken(gate: Gate) -> None:
    """The current and the previous secret sign, a third does not."""
    _, execution = await begun(gate)
    body = execution.envelopes[0].encode()
    assert (await gate.post(body, PREVIOUS))[0] == 200
    assert (await gate.post(body, CURRENT))[0] == 200
    status, problem = await gate.post(body, STRANGE)
    assert (status, problem["reason"]) == (401, "SIGNATURE_MISMATCH")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [({}, "SIGNATURE_MISSING"), ({"tdp-signature": "t=1"}, "SIGNATURE_MALFORMED")],
)
async def test_what_is_not_signed_is_refused(
    gate: Gate, headers: dict[str, str], reason: str
) -> None:
    """401 with the reason, whatever the body says."""
    _, execution = await begun(gate)
    status, problem = await gate.post(execution.envelopes[0].encode(), headers=headers)
    assert (status, problem["reason"]) == (401, reason)
    assert problem["type"].startswith("/problems/")


@pytest.mark.parametrize("skew_s", [-310, 310])
async def test_a_signature_of_another_time_is_refused(gate: Gate, skew_s: int) -> None:
    """F10: more than 300 s either way is 401, and 290 s is fine."""
    order_id, execution = await begun(gate)
    body = execution.envelopes[0].encode()
    status, problem = await gate.post(body, skew_s=skew_s)
    assert (status, problem["reason"]) == (401, "SIGNATURE_SKEWED")
    assert (await gate.desk.order(order_id))["version"] == 1
    assert (await gate.post(body, skew_s=skew_s * 290 // 310))[0] == 200


async def test_a_changed_body_is_refused(gate: Gate) -> None:
    """One more space after signing is another body."""
    _, execution = await begun(gate)
    body = execution.envelopes[0].encode()
    status, _ = await gate.post(body + b" ", headers=signature(body, CURRENT, 0))
    assert status == 401


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_oversized_body_is_refused_before_it_is_kept(gate: Gate, *, chunked: bool) -> None:
    """F23: 413, announced or not; the next delivery works."""
    body = b" " * (1024 * 1024 + 1)
    data = _chunks(body) if chunked else io.BytesIO(body)
    signed = signature(body, CURRENT, 0)
    async with gate.http.post("/callbacks", data=data, headers=signed) as answer:
        assert answer.status == 413
    with pytest.raises(ResourceExhaustedError) as caught:
        await gate.deliver(body)
    assert caught.value.reason == "CALLBACK_TOO_LARGE"
    _, execution = await begun(gate)
    assert (await gate.post(execution.envelopes[0].encode()))[0] == 200


async def _chunks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 64 * 1024):
        yield body[start : start + 64 * 1024]


@pytest.mark.parametrize(
    ("field", "value", "problem_type"),
    [
        ("specversion", "0.3", "callback-specversion-unknown"),
        ("type", "", "callback-type-invalid"),
        ("id", "00000000-0000-0000-0000-000000000000", "callback-id-invalid"),
        ("data.sequence", 0, "callback-number-invalid"),
        ("data.application_id", "0190a000-0000-7000-8000-00000000a002",
         "callback-application-foreign"),
        ("data.status", "PAUSED", "callback-status-unknown"),
    ],
)  # fmt: skip
async def test_each_check_answers_with_its_own_problem(
    gate: Gate, field: str, value: object, problem_type: str
) -> None:
    """422 over HTTP with a type that can be opened, INVALID_ARGUMENT over gRPC."""
    _, execution = await begun(gate)
    document = json.loads(execution.envelopes[0])
    *path, key = field.split(".")
    (document[path[0]] if path else document)[key] = value
    body = json.dumps(document).encode()
    status, problem = await gate.post(body)
    assert (status, problem["type"]) == (422, f"/problems/{problem_type}")
    async with gate.http.get(problem["type"]) as page:
        assert page.status == 200
    with pytest.raises(InvalidArgumentError):
        await gate.deliver(body)
    assert (await gate.post(b"no json"))[1]["type"] == "/problems/callback-malformed"


async def test_an_unknown_order_is_to_be_delivered_later(gate: Gate) -> None:
    """503 with Retry-After, UNAVAILABLE over gRPC; it is taken once the order is there."""
    order_id = gate.desk.ids.new_id()
    body = gate.platform.begin(order_id).envelopes[0].encode()
    signed = signature(body, CURRENT, 0)
    async with gate.http.post("/callbacks", data=body, headers=signed) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert (await answer.json(content_type=None))["type"] == "/problems/order-unknown"
    with pytest.raises(UnavailableError) as caught:
        await gate.deliver(body)
    assert caught.value.reason == "ORDER_UNKNOWN"
    await gate.desk.new_order(order_id)
    assert await gate.post(body) == (200, {"duplicate": False})


@pytest.mark.parametrize("stage", ["commit", "reply"])
async def test_a_lost_answer_is_delivered_again(gate: Gate, stage: str) -> None:
    """F02: 503 before and after the commit; the repeat is stored once."""
    point = f"gateway.callback.{stage}.before"
    order_id, execution = await begun(gate)
    body = execution.envelopes[0].encode()
    install_failpoints(SYNC_FAILPOINTS, {"TDP_FAILPOINTS": f"{point}=drop_reply@1"})
    try:
        assert (await gate.post(body))[0] == 503
        assert await gate.post(body) == (200, {"duplicate": stage == "reply"})
    finally:
        uninstall_failpoints()
    assert (await gate.desk.order(order_id))["version"] == 2


async def test_a_burst_over_both_entrances_ends_in_order(gate: Gate) -> None:
    """Thirty events three times each, all at once: one projection, no gap, each event once."""
    order_id, execution = await begun(gate)
    for progress in range(1, 29):
        gate.platform.tell(execution, "RUNNING", progress)
    gate.platform.tell(execution, "FAILED", 28, failure={"reason": "BAD", "message": "no"})
    bodies = [one.encode() for one in execution.envelopes]
    async with asyncio.TaskGroup() as group:
        for body in bodies[::-1]:
            group.create_task(gate.post(body), name="post")
            group.create_task(gate.deliver(body), name="deliver")
            group.create_task(gate.post(body), name="post-again")
    order = await gate.desk.order(order_id)
    assert (order["status"], order["diagnosis"]) == ("NEEDS_ATTENTION", "BAD: no")
    assert order["last_contiguous_sequence"] == 30
    _, _, inbox = await gate.desk.everything()
    assert [row["arrivals"] for row in inbox] == [3] * 30


async def test_dropped_callbacks_are_made_good_by_queries_alone(
    gateway_database: Database, platform: Platform
) -> None:
    """With the switch deliveries are answered 200 and none is stored; the sweep finds the end."""
    quick = {"drop_callbacks": True, "quiet_order_s": 0.2, "sweep_interval_s": 0.1}
    async with gate_of(gateway_database, platform, **quick) as gate:
        order_id = await gate.desk.new_order()
        await gate.desk.submit(order_id)
        gate.commands_added()
        await gate.order_when(order_id, "PROCESSING")
        (execution,) = (runs[0] for runs in platform.runs.values())
        platform.tell(execution, "RUNNING", 50)
        platform.tell(execution, "SUCCEEDED", 100)
        for envelope in execution.envelopes:
            assert await gate.post(envelope.encode()) == (200, {"duplicate": False})
        assert (await gate.post(b"{}", STRANGE))[0] == 401
        order = await gate.order_when(order_id, "COMPLETED")
        assert order["last_contiguous_sequence"] == 3
        _, _, inbox = await gate.desk.everything()
        assert {row["source"] for row in inbox} == {"QUERY"}


async def test_a_gap_wakes_the_query_at_once(gate: Gate) -> None:
    """With a sweep every ten minutes, a gap is still filled after its grace."""
    order_id, execution = await begun(gate)
    gate.platform.tell(execution, "RUNNING", 10)
    gate.platform.tell(execution, "RUNNING", 20)
    gate.platform.tell(execution, "SUCCEEDED", 100)
    await gate.post(execution.envelopes[0].encode())
    await gate.post(execution.envelopes[2].encode())
    # What the gap hides is the end, so that its fetching can be seen.
    order = await gate.order_when(order_id, "COMPLETED")
    assert order["last_contiguous_sequence"] == 4


@pytest.mark.parametrize("count", [0, 3])
def test_callbacks_need_one_or_two_secrets(count: int) -> None:
    """None could check nothing; a third is no rotation."""
    with pytest.raises(ValueError, match="callback secrets"):
        replace(CallbackRules(APPLICATION_ID, [CURRENT]), secrets=[CURRENT] * count)
