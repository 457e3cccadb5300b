"""Client channels: keepalive, size limits, retries by service config, TLS, owned calls."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from foundation.errors import UnavailableError
from foundation.grpc.messages import MESSAGE_BYTES_MAX, check_message_size
from foundation.grpc.status import from_rpc_error

Metadata = Sequence[tuple[str, str | bytes]]

# Published: what clients in any language should use. Only UNAVAILABLE is retried, which is
# safe because every mutating call carries an idempotency key.
SERVICE_CONFIG: Final = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
}

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response")
_Call = TypeVar("_Call", bound="Cancellable")


class Cancellable(Protocol):
    """A call in progress."""

    def cancel(self) -> bool:
        """End the call; does nothing to a finished one."""
        ...


@dataclass(frozen=True, slots=True)
class ClientTls:
    """PEM files of a TLS client; without a CA the system's roots are trusted."""

    ca_path: Path | None = None
    certificate_chain_path: Path | None = None
    private_key_path: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files; OSError if one cannot be read."""
        return grpc.ssl_channel_credentials(
            root_certificates=_read(self.ca_path),
            private_key=_read(self.private_key_path),
            certificate_chain=_read(self.certificate_chain_path),
        )


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    """Where to dial and what to bound.

    `authority` is the name that is checked and sent when `target` is an address that was
    resolved beforehand. `retries` applies SERVICE_CONFIG; a service config that the name's
    DNS offers is never looked up, and proxy variables are ignored.
    """

    target: str
    tls: ClientTls | None = None
    authority: str | None = None
    retries: bool = True
    message_bytes_max: int = MESSAGE_BYTES_MAX
    metadata_bytes_max: int = 16 * 1024
    keepalive_time_s: float = 15.0
    keepalive_timeout_s: float = 10.0
    reconnect_backoff_s_max: float = 5.0

    def options(self) -> list[tuple[str, int | str]]:
        """Return the channel arguments of the client."""
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            ("grpc.max_metadata_size", self.metadata_bytes_max),
            ("grpc.keepalive_time_ms", _millis(self.keepalive_time_s)),
            ("grpc.keepalive_timeout_ms", _millis(self.keepalive_timeout_s)),
            # As on the server: without it a ping waits a minute for its answer.
            ("grpc.http2.ping_timeout_ms", _millis(self.keepalive_timeout_s)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.min_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", _millis(self.reconnect_backoff_s_max)),
            # One connection per channel: sessions must not share the fate of another's.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.enable_retries", int(self.retries)),
        ]
        if self.retries:
            options.append(("grpc.service_config", json.dumps(SERVICE_CONFIG)))
        if self.authority is not None:
            options.append(("grpc.default_authority", self.authority))
            if self.tls is not None:
                options.append(("grpc.ssl_target_name_override", self.authority))
        return options


def open_channel(config: ChannelConfig) -> grpc.aio.Channel:
    """Make a channel; it connects when first used. Close it with `async with` or `close()`."""
    if config.tls is None:
        return grpc.aio.insecure_channel(config.target, options=config.options())
    return grpc.aio.secure_channel(
        config.target, config.tls.credentials(), options=config.options()
    )


async def wait_until_ready(channel: grpc.aio.Channel, *, target: str, timeout_s: float) -> None:
    """Return once the channel is connected; UnavailableError (NOT_CONNECTED) after the time-out."""
    try:
        async with asyncio.timeout(timeout_s):
            await channel.channel_ready()
    except TimeoutError:
        raise UnavailableError(
            f"no connection to {target} within {timeout_s} s: is the server up, and is the "
            "address right?",
            reason="NOT_CONNECTED",
        ) from None


def bearer_metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries a credential (metadata works on plain channels too)."""
    return (("authorization", f"Bearer {token}"),)


@asynccontextmanager
async def owned_call(call: _Call) -> AsyncIterator[_Call]:
    """Hold a call that is cancelled at the end, whatever happens: an abandoned one leaks."""
    try:
        yield call
    finally:
        call.cancel()


async def call_unary(
    method: "grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]",
    request: _Request,
    *,
    timeout_s: float,
    metadata: Metadata = (),
    wait_for_ready: bool = False,
    size_bytes_max: int = MESSAGE_BYTES_MAX,
) -> _Response:
    """Call once, within a time-out, and raise what the peer answered as the TdpError it is.

    Raises MessageTooLargeError before anything is sent if the request is over the limit.
    """
    check_message_size(
        request, what=type(request).DESCRIPTOR.full_name, size_bytes_max=size_bytes_max
    )
    started: Any = method(
        request, timeout=timeout_s, metadata=tuple(metadata), wait_for_ready=wait_for_ready
    )
    async with owned_call(started) as call:
        try:
            response: _Response = await call
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        return response


def _read(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None


def _millis(seconds: float) -> int:
    return int(seconds * 1_000)
