"""Where the command line finds the platform: variables, or the stack that `tdp dev` runs."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc.aio
from google.protobuf.message import Message

from foundation.errors import FailedPreconditionError
from foundation.grpc.channel import (
    ChannelConfig,
    ClientTls,
    bearer_metadata,
    call_unary,
    open_channel,
)

CONTEXT_FILE: Final = Path(".data/dev/context.json")
_CALL_TIMEOUT_S: Final = 30.0
_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response")
_HINT: Final = "start a stack with `tdp dev`, or set the variable"


class NotConfiguredError(FailedPreconditionError):
    """Nothing says where the platform is."""

    reason = "NOT_CONFIGURED"


@dataclass(frozen=True, slots=True)
class Connection:
    """Addresses and keys; keys are never shown."""

    gateway_url: str = ""
    gateway_key: str = field(default="", repr=False)
    control_target: str = ""
    control_key: str = field(default="", repr=False)
    control_tls: bool = False

    def save(self, path: Path) -> None:
        """Write it for later commands, readable by the owner only."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def find(cls) -> "Connection":
        """Read TDP_CLI_GATEWAY_URL, _GATEWAY_KEY, _CONTROL_TARGET, _CONTROL_KEY, _CONTROL_TLS.

        What is not set comes from the file that TDP_CLI_CONTEXT names, by default the one of
        `tdp dev` below the present folder.
        """
        path = Path(os.environ.get("TDP_CLI_CONTEXT", CONTEXT_FILE))
        saved = _saved(path)
        return cls(
            gateway_url=_variable("GATEWAY_URL", saved.get("gateway_url", "")),
            gateway_key=_variable("GATEWAY_KEY", saved.get("gateway_key", "")),
            control_target=_variable("CONTROL_TARGET", saved.get("control_target", "")),
            control_key=_variable("CONTROL_KEY", saved.get("control_key", "")),
            control_tls=_variable("CONTROL_TLS", str(saved.get("control_tls", "")))
            in ("1", "True"),
        )

    def gateway(self) -> tuple[str, str]:
        """Return the gateway's URL and key; NotConfiguredError."""
        if not self.gateway_url or not self.gateway_key:
            raise NotConfiguredError(
                f"no gateway is known: {_HINT}s TDP_CLI_GATEWAY_URL and TDP_CLI_GATEWAY_KEY"
            )
        return self.gateway_url.rstrip("/"), _sendable("TDP_CLI_GATEWAY_KEY", self.gateway_key)

    @asynccontextmanager
    async def control(self) -> AsyncIterator["ControlPlane"]:
        """Open a channel to the control plane; NotConfiguredError."""
        if not self.control_target or not self.control_key:
            raise NotConfiguredError(
                f"no control plane is known: {_HINT}s TDP_CLI_CONTROL_TARGET and "
                "TDP_CLI_CONTROL_KEY"
            )
        metadata = bearer_metadata(_sendable("TDP_CLI_CONTROL_KEY", self.control_key))
        tls = ClientTls() if self.control_tls else None
        async with open_channel(ChannelConfig(target=self.control_target, tls=tls)) as channel:
            yield ControlPlane(channel, metadata)


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """An open channel and the metadata that carries the key."""

    channel: grpc.aio.Channel
    metadata: tuple[tuple[str, str], ...] = field(repr=False)

    async def ask(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
    ) -> _Response:
        """Call once with the key; raises what the control plane answered as the TdpError it is."""
        return await call_unary(method, request, timeout_s=_CALL_TIMEOUT_S, metadata=self.metadata)


def _saved(path: Path) -> dict[str, Any]:
    try:
        saved = json.loads(path.read_text()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise NotConfiguredError(
            f"{path} cannot be read ({error}): let TDP_CLI_CONTEXT name the context.json that "
            "`tdp dev` wrote"
        ) from None
    if not isinstance(saved, dict):
        raise NotConfiguredError(f"{path} was not written by `tdp dev`: remove it")
    return saved


def _sendable(name: str, key: str) -> str:
    """Return the key, which is never shown; NotConfiguredError if no header can carry it."""
    if key.isascii() and key.isprintable() and " " not in key:
        return key
    raise NotConfiguredError(
        f"{name} has characters that no key has (a space, a line break?): copy the key anew"
    )


def _variable(name: str, otherwise: str) -> str:
    return os.environ.get(f"TDP_CLI_{name}", otherwise)
