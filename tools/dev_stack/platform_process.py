"""One of TDP's own processes as a child: start until ready, kill, stop, restart."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.dev_stack.errors import ServerNotRunningError, ServerStartError
from tools.dev_stack.processes import (
    ChildProcess,
    Deadline,
    Launch,
    calling_at_end,
    uninterrupted,
)
from tools.dev_stack.server import NotReadyError

_ROOT: Final = Path(__file__).resolve().parents[2]
_IMPORT_ROOTS: Final = f"{_ROOT}:{_ROOT / 'protos' / 'gen'}"
_PROBE_PERIOD_S: Final = 0.05
_PROBE_PERIOD_MAX_S: Final = 0.4
_STOP_PATIENCE_S: Final = 25.0

Probe = Callable[[], Awaitable[None]]
"""Returns once the process serves; raises NotReadyError or OSError until then."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run (`python -m MODULE serve`), how it is configured, and how it shows it is ready.

    `environment` is asked at each start. `begin` makes the probe of one start; it is awaited before
    the process starts, so that a probe can tell this run from the last.
    """

    name: str
    module: str
    log_file: Path
    environment: Callable[[], Mapping[str, str]] = field(repr=False)
    begin: Callable[[], Awaitable[Probe]]
    start_timeout_s: float = 60.0


class PlatformProcess:
    """A process of TDP that never outlives this one."""

    def __init__(self, spec: ProcessSpec) -> None:
        """Describe it; nothing runs yet."""
        self._spec = spec
        self._process: ChildProcess | None = None
        self._end_asked = False
        self.log_file = spec.log_file

    @property
    def name(self) -> str:
        """Its name among the processes of the platform, for example agent-1."""
        return self._spec.name

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.exit_status is None

    @property
    def pid(self) -> int:
        """The id of the running process; ServerNotRunningError otherwise."""
        return self._running().pid

    async def start(self, extra: Mapping[str, str] | None = None) -> None:
        """Start it with further variables, and return once it serves.

        Raises:
            ServerStartError: it ended, or was not ready in time; carries its log's end.
        """
        probe = await self._spec.begin()
        self.spawn(extra)
        await self._await_ready(probe)

    def spawn(self, extra: Mapping[str, str] | None = None) -> None:
        """Start it and don't wait: for one that is meant to die while it starts."""
        assert not self.is_running, f"{self.name} runs already"
        self._end_asked = False
        self._process = ChildProcess(self._launch(extra))

    async def kill(self) -> None:
        """SIGKILL it, as a crash would, and wait for its end."""
        process = self._running()
        self._end_asked = True
        process.send(signal.SIGKILL)
        await process.wait()

    def pause(self) -> None:
        """SIGSTOP it: it neither works nor answers, and looks alive to the system."""
        self._running().send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._running().send(signal.SIGCONT)

    async def stop(self) -> None:
        """End it in order, by force if it takes too long; idempotent."""
        self._end_asked = True
        if self._process is not None:
            await uninterrupted(self._process.end((signal.SIGTERM, _STOP_PATIENCE_S)))

    async def restart(self, extra: Mapping[str, str] | None = None) -> None:
        """Stop it if it runs, and start it with these further variables only."""
        await self.stop()
        await self.start(extra)

    async def wait_for_end(self) -> int:
        """Wait for the end of the present run, whoever caused it; answer the exit status."""
        if self._process is None:
            raise ServerNotRunningError(self.name)
        return await self._process.wait()

    async def wait_for_crash(self) -> str:
        """Wait for an end that nobody asked for here; answer what happened, with the log's end.

        Never returns for a run that was ended through this object.
        """
        process = self._process
        if process is None:
            raise ServerNotRunningError(self.name)
        status = await process.wait()
        if self._end_asked:
            await asyncio.get_running_loop().create_future()
        return (
            f"{self.name} ended with status {status}; its log is {self.log_file} and ends with:\n"
            f"{process.log_tail()}"
        )

    def log_tail(self) -> str:
        """The last lines that the present or last run wrote."""
        return self._process.log_tail() if self._process is not None else ""

    def _running(self) -> ChildProcess:
        if self._process is None or self._process.exit_status is not None:
            raise ServerNotRunningError(self.name)
        return self._process

    def _launch(self, extra: Mapping[str, str] | None) -> Launch:
        environment = {
            "PYTHONPATH": _IMPORT_ROOTS,
            "PYTHONUNBUFFERED": "1",
            **self._spec.environment(),
            **(extra or {}),
        }
        line = (sys.executable, "-m", self._spec.module, "serve")
        return Launch(line, self.log_file, environment=environment)

    async def _await_ready(self, probe: Probe) -> None:
        process = self._running()
        ended = asyncio.Event()
        with calling_at_end(process.pid, ended.set):
            problem = await self._probe_until_ready(process, probe, ended)
        if problem:
            tail = process.log_tail()
            await self.stop()
            raise ServerStartError(self.name, problem, self.log_file, tail)

    async def _probe_until_ready(
        self, process: ChildProcess, probe: Probe, ended: asyncio.Event
    ) -> str:
        deadline, period_s, answer = Deadline(self._spec.start_timeout_s), _PROBE_PERIOD_S, ""
        while deadline.remaining_s > 0:
            try:
                await probe()
            except (OSError, NotReadyError) as error:
                answer = str(error) or repr(error)
            else:
                # A good answer could be another process's, on the same port.
                return "" if process.exit_status is None else self._ended(process)
            try:
                async with asyncio.timeout(period_s):
                    await ended.wait()
                return self._ended(process)
            except TimeoutError:
                period_s = min(period_s * 1.5, _PROBE_PERIOD_MAX_S)
        return f"it is not ready after {self._spec.start_timeout_s:g} s ({answer})"

    @staticmethod
    def _ended(process: ChildProcess) -> str:
        return f"it ended with status {process.exit_status}"
