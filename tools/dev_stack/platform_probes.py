"""How each of TDP's processes shows that it serves."""

from __future__ import annotations

from typing import Final

import aiohttp
import grpc.aio
from grpc_health.v1 import health_pb2

from foundation.errors import TdpError
from foundation.grpc.channel import ChannelConfig, call_unary, open_channel
from tools.dev_stack.platform_bootstrap import node_session
from tools.dev_stack.platform_process import Probe
from tools.dev_stack.server import NotReadyError

_PROBE_TIMEOUT_S: Final = 3.0


async def grpc_serves(target: str) -> None:
    """Ask the health service on `target`; NotReadyError unless it says SERVING."""
    try:
        async with open_channel(ChannelConfig(target=target, retries=False)) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            request = health_pb2.HealthCheckRequest()
            answer = await call_unary(check, request, timeout_s=_PROBE_TIMEOUT_S)
    except (TdpError, grpc.aio.AioRpcError) as error:
        raise NotReadyError(str(error)) from None
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise NotReadyError(f"its health is {answer.status}")


async def http_serves(url: str) -> None:
    """GET a health route; NotReadyError unless it answers 200."""
    timeout = aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            if answer.status != 200:  # noqa: PLR2004 - OK of HTTP
                raise NotReadyError(f"{url} answered {answer.status}")
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NotReadyError(f"{url}: {error}") from None


async def node_probe(target: str, admin_key: str, name: str) -> Probe:
    """Make the probe for a node's next session: ready, and newer than what is there now."""
    try:
        before, _ = await node_session(target, admin_key, name)
    except TdpError:
        before = 0

    async def probe() -> None:
        try:
            generation, is_ready = await node_session(target, admin_key, name)
        except TdpError as error:
            raise NotReadyError(str(error)) from None
        if generation <= before or not is_ready:
            raise NotReadyError(f"the control plane has no ready session of {name}")

    return probe
