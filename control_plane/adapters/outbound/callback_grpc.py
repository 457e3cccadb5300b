"""Callbacks over gRPC: the very bytes that were signed, the signature in metadata."""

from typing import Final
from urllib.parse import urlsplit

import grpc.aio

from control_plane.adapters.outbound.address_guard import AddressGuard, AddressRefusedError
from control_plane.core.callbacks.domain import CallbackTarget
from control_plane.limits import CALLBACK_TIMEOUT_S, CHANNELS_MAX, RETRY_AFTER_S_MAX
from foundation.clock import Clock
from foundation.errors import TdpError
from foundation.grpc.channel import ChannelConfig, ClientTls, call_unary, open_channel
from foundation.outbox.model import Delivered, Held, Outcome, Retry
from foundation.signatures import SigningSecret, delivery_headers
from tdp.callback.v1 import callback_service_pb2 as pb
from tdp.callback.v1 import callback_service_pb2_grpc as pb_grpc

ENDPOINT_GONE: Final = "ENDPOINT_GONE"


class GrpcCallbacks:
    """Implements CallbackTransport for grpc and grpcs; keeps one channel per endpoint."""

    def __init__(self, guard: AddressGuard, clock: Clock) -> None:
        self._guard = guard
        self._clock = clock
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}

    async def close(self) -> None:
        """Close all channels; idempotent."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def deliver(self, target: CallbackTarget, event_id: str, body: bytes) -> Outcome:
        """Call DeliverEvent once; every failure is an outcome."""
        parts = urlsplit(target.url)
        shown = f"{parts.scheme}://{parts.netloc}"
        headers = delivery_headers(
            body,
            SigningSecret(target.secret),
            event_id=event_id,
            at_s=int(self._clock.now().timestamp()),
        )
        try:
            stub = pb_grpc.CallbackServiceStub(await self._channel(target.url))
            await call_unary(
                stub.DeliverEvent,
                pb.DeliverEventRequest(body=body),
                timeout_s=CALLBACK_TIMEOUT_S,
                metadata=tuple(headers.items()),
            )
        except AddressRefusedError as error:
            return Retry(f"{shown} could not be called: {error}")
        except TdpError as error:
            if error.reason == ENDPOINT_GONE:
                return Held(f"{shown} is gone: set the endpoint again to enable it")
            return Retry(f"{shown} answered {error.code}: {error}", retry_after_s=_wait_s(error))
        return Delivered()

    async def _channel(self, url: str) -> grpc.aio.Channel:
        """Return the channel to the checked address of the URL's host."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
        address = (await self._guard.resolve(host, port))[0]
        dialled = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        key = (url, dialled)
        channel = self._channels.get(key)
        if channel is None:
            if len(self._channels) >= CHANNELS_MAX:
                oldest = next(iter(self._channels))
                await self._channels.pop(oldest).close()
            tls = ClientTls() if parts.scheme == "grpcs" else None
            config = ChannelConfig(target=dialled, tls=tls, authority=host, retries=False)
            channel = self._channels[key] = open_channel(config)
        return channel


def _wait_s(error: TdpError) -> float | None:
    """Return the wait that a refusal asks for by RetryInfo, as Retry-After does; at most a day."""
    if error.retry_delay_s is None:
        return None
    return min(error.retry_delay_s, RETRY_AFTER_S_MAX)
