"""`tdp conservation`: what it shows, and how it exits."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from tdp.control.v1 import system_service_pb2 as system
from tools.cli import main as cli
from tools.cli.commands import conservation
from tools.cli.connection import Connection
from tools.cli.output import ExitCode


def answer(*differing: str) -> system.GetConservationResponse:
    line = system.ConservationLine(
        key="accepted",
        name="tasks accepted = terminal + live",
        left_count=2,
        right_count=2 - len(differing),
        differing_ids=differing,
        meaning="Something is lost.",
    )
    return system.GetConservationResponse(lines=[line], balanced=not differing)


class Answering:
    """A connection whose control plane answers one thing, and remembers what it was asked."""

    def __init__(self, response: system.GetConservationResponse) -> None:
        self.asked = system.GetConservationRequest()
        self._response = response
        self.channel = SimpleNamespace()

    @asynccontextmanager
    async def control(self) -> AsyncIterator["Answering"]:
        yield self

    async def ask(
        self, _method: object, request: system.GetConservationRequest
    ) -> system.GetConservationResponse:
        self.asked = request
        return self._response


def run(monkeypatch: pytest.MonkeyPatch, platform: Answering, *arguments: str) -> int:
    monkeypatch.setattr(Connection, "find", lambda: platform)
    stub = SimpleNamespace(GetConservation=None)
    monkeypatch.setattr(conservation, "Stub", lambda _channel: stub)
    monkeypatch.setattr("sys.argv", ["tdp", "conservation", *arguments])
    with pytest.raises(SystemExit) as exited:
        cli.main()
    return int(exited.value.code or 0)


def test_a_balanced_platform_exits_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The window is as long as asked for, and JSON is the contract's document."""
    platform = Answering(answer())
    assert run(monkeypatch, platform, "--json", "--hours", "2", "--before", "2026-05-01") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["balanced"] is True
    assert document["lines"][0]["left_count"] == "2"
    span = platform.asked.end_time.seconds - platform.asked.start_time.seconds
    assert span == 2 * 3_600


def test_a_difference_is_named_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts see it by the status, people by the ids and by what a difference means."""
    assert run(monkeypatch, Answering(answer("id-1"))) == ExitCode.NEEDS_ATTENTION
    shown = capsys.readouterr().out
    assert "DIFFERS" in shown
    assert "id-1" in shown
    assert "Something is lost." in shown
