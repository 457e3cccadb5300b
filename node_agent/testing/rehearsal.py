"""Attempts in a real child process, each stopped or killed at a chosen point of its work."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from foundation.clock import Clock, SystemClock
from node_agent.adapters.outbound.process_host import ProcessHost, ProcessHostConfig
from node_agent.adapters.outbound.transfers import TransferConfig
from node_agent.core.execution.ports import Outcome, RunOrder
from node_agent.sdk.discovery import LoadedCapability
from node_agent.testing.orders import local_order
from node_agent.testing.services import StagedServices

STOP_GRACE_S: Final = 5.0


class Blow(StrEnum):
    """What is done to an attempt."""

    STOP = "stop"
    """It is asked to stop, as for a cancellation."""
    KILL = "kill"
    """Its process is killed, as when the machine dies; nothing it does afterwards counts."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A blow at the `call_number`-th call to the agent (from 1), or `after_s` from the start."""

    blow: Blow
    call_number: int = 0
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """An input document and the files that it refers to."""

    document: Mapping[str, Any]
    files: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class Performance:
    """What one attempt did; no outcome if it was killed, `ending_s` from the stop to its end.

    `artifacts` has the SHA-256 in hex by path, `uploads` every path as often as it was uploaded.
    """

    outcome: Outcome | None
    calls: Sequence[str]
    checkpoints: Sequence[str]
    artifacts: Mapping[str, str]
    ending_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where an attempt works and writes; a resumed one has its predecessor's and a checkpoint."""

    work_folder: Path
    output: Path
    attempt: str
    attempt_number: int = 1
    checkpoint_json: str | None = None


class Stage:
    """A host with one capability; to be used as a context."""

    def __init__(self, loaded: LoadedCapability, folder: Path, clock: Clock | None = None) -> None:
        """Take an empty folder; nothing is started yet."""
        self.capability = loaded.capability
        self._folder = folder
        self._clock = clock or SystemClock()
        key = self.capability.name, self.capability.version
        config = ProcessHostConfig(
            slot_count=1, stop_grace_s=STOP_GRACE_S, transfers=TransferConfig(file_grants=True)
        )
        # The second one is for what runs at the same time; it starts a child only if it is used.
        self._hosts = tuple(ProcessHost({key: loaded}, config) for _ in range(2))
        self._place_count = 0

    async def __aenter__(self) -> Self:
        """Be ready; the first attempt starts a child."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the children."""
        for host in self._hosts:
            await host.stop()

    def place(self, output: Path | None = None, attempt_number: int = 1) -> Place:
        """Make the place of a new attempt, with a new folder for artifacts if none is given."""
        self._place_count += 1
        name = f"attempt-{self._place_count}"
        work_folder = self._folder / name
        work_folder.mkdir()
        return Place(work_folder, output or self._folder / f"{name}-out", name, attempt_number)

    async def perform(
        self,
        given: Given,
        place: Place,
        disturbance: Disturbance | None = None,
        *,
        aside: bool = False,
    ) -> Performance:
        """Run one attempt to its end, or to the blow; `aside` where another one runs meanwhile.

        Raises ChildStartError if no child comes up.
        """
        host = self._hosts[aside]
        if disturbance is not None:
            # Times count from the work's start, not from that of a child.
            await host.start()
        act = _Act(disturbance, self._clock)
        services = StagedServices(given.files, place.output, act.after_call)
        order = local_order(
            self.capability,
            json.dumps(given.document),
            place.work_folder,
            attempt=place.attempt,
            attempt_number=place.attempt_number,
            checkpoint_json=place.checkpoint_json,
        )
        outcome = await self._run(host, order, services, act)
        hashes = {path: one.sha256.hex() for path, one in sorted(services.artifacts.items())}
        return Performance(outcome, act.calls, services.checkpoints, hashes, act.ending_s())

    async def _run(
        self, host: ProcessHost, order: RunOrder, services: StagedServices, act: "_Act"
    ) -> Outcome | None:
        with act.on_time():
            async with asyncio.TaskGroup() as group:
                work = group.create_task(host.run(order, services, act.stop), name=order.attempt_id)
                death = group.create_task(act.killed.wait(), name=f"death of {order.attempt_id}")
                await asyncio.wait({work, death}, return_when=asyncio.FIRST_COMPLETED)
                death.cancel()
                # The host kills the child of a run that is cancelled.
                work.cancel()
        return None if work.cancelled() else work.result()


class _Act:
    """The disturbance of one attempt, when it is due."""

    def __init__(self, disturbance: Disturbance | None, clock: Clock) -> None:
        self._disturbance = disturbance
        self._clock = clock
        self._struck_s: float | None = None
        self.stop = asyncio.Event()
        self.killed = asyncio.Event()
        self.calls: list[str] = []

    async def after_call(self, name: str) -> None:
        """Count a call; strike if it is the one."""
        self.calls.append(name)
        if self._disturbance is None or self._disturbance.call_number != len(self.calls):
            return
        self._strike(self._disturbance.blow)
        if self._disturbance.blow is Blow.KILL:
            # The answer never comes, so the work cannot go on.
            await asyncio.Event().wait()

    def on_time(self) -> "_Timer":
        """Strike in the block's course, if the disturbance is one of time."""
        return _Timer(self)

    def arm(self) -> asyncio.TimerHandle | None:
        """Set the clock of a timed disturbance."""
        disturbance = self._disturbance
        if disturbance is None or disturbance.after_s is None:
            return None
        loop = asyncio.get_running_loop()
        return loop.call_later(disturbance.after_s, self._strike, disturbance.blow)

    def ending_s(self) -> float:
        """How long ago the blow fell, 0 if none did."""
        return 0.0 if self._struck_s is None else self._clock.monotonic() - self._struck_s

    def _strike(self, blow: Blow) -> None:
        self._struck_s = self._clock.monotonic()
        (self.killed if blow is Blow.KILL else self.stop).set()


class _Timer:
    def __init__(self, act: _Act) -> None:
        self._act = act
        self._handle: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._handle = self._act.arm()

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.cancel()
