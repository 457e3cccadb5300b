"""A host name that changes its address between the check and the dial is not followed inside."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from control_plane.adapters.outbound.address_guard import AddressGuard, AddressRefusedError
from control_plane.adapters.outbound.callback_grpc import GrpcCallbacks
from control_plane.adapters.outbound.callback_http import HttpCallbacks
from control_plane.core.callbacks.domain import CallbackTarget
from foundation.clock import SystemClock
from foundation.outbox.model import Retry

PUBLIC, INSIDE = "8.8.8.8", "127.0.0.1"


class Rebinding:
    """Answers the look-ups of one name with one address after the other."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def getaddrinfo(self, host: str, port: int, **_: object) -> list[object]:
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]


@pytest.fixture
async def inside() -> AsyncIterator[tuple[int, list[int]]]:
    """A service on loopback that nobody may reach, and the connections that it saw."""
    seen: list[int] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(1)
        writer.close()

    server = await asyncio.start_server(take, INSIDE, 0)
    yield server.sockets[0].getsockname()[1], seen
    server.close()


def _names(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
    names = Rebinding(*answers)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
@pytest.mark.parametrize("answers", [([PUBLIC], [INSIDE]), ([PUBLIC, INSIDE],), ([INSIDE],)])
async def test_no_answer_of_a_name_leads_inside(
    monkeypatch: pytest.MonkeyPatch,
    inside: tuple[int, list[int]],
    scheme: str,
    answers: tuple[list[str], ...],
) -> None:
    """Whatever a look-up said before, what is dialled was checked, with all of its fellows."""
    port, seen = inside
    guard = AddressGuard(private_allowed=False)
    # gRPC resolves once: what it checked is the very address that it would dial.
    _names(monkeypatch, *(answers if scheme == "http" else answers[-1:]))
    target = CallbackTarget("app", f"{scheme}://shop.example:{port}/cb", b"s" * 32, disabled=False)
    transport = HttpCallbacks(guard, SystemClock())
    over_grpc = GrpcCallbacks(guard, SystemClock())
    await transport.open()
    try:
        used = transport if scheme == "http" else over_grpc
        outcome = await used.deliver(target, "event", b"{}")
    finally:
        await transport.close()
        await over_grpc.close()

    assert isinstance(outcome, Retry)
    assert "could not be called" in outcome.error
    assert seen == []


async def test_a_name_without_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address at all is nothing to dial."""
    _names(monkeypatch, [])
    with pytest.raises(AddressRefusedError, match="no address"):
        await AddressGuard(private_allowed=False).resolve("shop.example", 443)
