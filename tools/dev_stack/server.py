"""What the three servers share: start with a ready handshake, stop, kill and restart."""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from tools.dev_stack import ports
from tools.dev_stack.errors import ServerNotRunningError, ServerStartError
from tools.dev_stack.processes import ChildProcess, Deadline, Launch, calling_at_end, uninterrupted

_HEALTH_PERIOD_S: Final = 0.02
_HEALTH_PERIOD_MAX_S: Final = 0.25
_PROBE_TIMEOUT_S: Final = 5.0
_RETRY_PERIOD_S: Final = 0.1
_OLD_PORT_PATIENCE_S: Final = 2.0
"""The servers of a parent that was just killed need a moment to let go of their ports."""


class NotReadyError(Exception):
    """A probe found the server alive and not yet ready; internal to the start."""


class Server(ABC):
    """One embedded server. Belongs to no event loop; not for concurrent use by two tasks."""

    name: str
    conflict_marks: tuple[str, ...] = ("address already in use", "Address already in use")
    """Parts of the log that say that another process took the port."""
    retry_marks: tuple[str, ...] = ()
    """Parts of the log that say that an earlier run of the same server has not ended yet."""

    def __init__(self, log_file: Path, *, port: int, start_timeout_s: float) -> None:
        """Take where to log, the port to prefer (0: any), and the patience of a start."""
        self.log_file = log_file
        self.port = port
        self._start_timeout_s = start_timeout_s
        self._process: ChildProcess | None = None
        self._stop_asked = False

    @property
    def pid(self) -> int:
        """The main process's id.

        Raises:
            ServerNotRunningError: it was never started, or has been stopped.
        """
        return self._running_process().pid

    @property
    def is_running(self) -> bool:
        """Whether the main process is alive."""
        return self._process is not None and self._process.exit_status is None

    async def start(self) -> None:
        """Start, and return when the server answers; nothing happens if it runs.

        The preferred port is used where it is free, another one where it is not.

        Raises:
            ServerStartError: it ended, or was not ready in time; carries the end of its log.
        """
        if self.is_running:
            return
        if self.port == 0 or not await self._port_gets_free():
            self.port = ports.free_port()
        await self._start(may_move=True)

    async def restart(self) -> None:
        """Stop if running, and start on the same port, so that clients find it again.

        Raises:
            ServerStartError: as for start; also if another process keeps the port.
        """
        await self.stop()
        await self._start(may_move=False)

    async def stop(self, *, immediate: bool = False) -> None:
        """End the server, in order or at once; idempotent, returns when it has ended."""
        self._stop_asked = True
        process = self._process
        if process is None:
            return
        await uninterrupted(self._end(process, immediate=immediate))

    async def kill(self) -> None:
        """SIGKILL the main process, as a crash would, and wait for its end."""
        process = self._running_process()
        self._stop_asked = True
        process.send(signal.SIGKILL)
        await process.wait()

    async def wait_for_crash(self) -> str:
        """Wait for an end that nobody asked for; answer what happened, with the log's end.

        Watches the run that is going on now; never returns once that has been stopped on purpose.
        """
        process = self._process
        if process is None:
            raise ServerNotRunningError(self.name)
        status = await process.wait()
        if self._stop_asked:
            await asyncio.get_running_loop().create_future()
        return f"{self.name} ended with status {status}; its log ends with:\n{process.log_tail()}"

    @abstractmethod
    async def _prepare(self, deadline: Deadline) -> None:
        """Make folders and files so that the command can run."""

    @abstractmethod
    def _launch(self) -> Launch:
        """The command for the current port."""

    @abstractmethod
    async def _probe(self, process: ChildProcess) -> None:
        """Return if the process serves; raise OSError or NotReadyError if not yet."""

    @abstractmethod
    async def _end(self, process: ChildProcess, *, immediate: bool) -> None:
        """End the process and everything that it started."""

    def _running_process(self) -> ChildProcess:
        if self._process is None or self._process.exit_status is not None:
            raise ServerNotRunningError(self.name)
        return self._process

    async def _port_gets_free(self) -> bool:
        deadline = Deadline(_OLD_PORT_PATIENCE_S)
        while not ports.is_free(self.port):
            if deadline.remaining_s <= 0:
                return False
            await asyncio.sleep(_RETRY_PERIOD_S)
        return True

    async def _start(self, *, may_move: bool) -> None:
        deadline = Deadline(self._start_timeout_s)
        await self._prepare(deadline)
        self._stop_asked = False
        while True:
            process = self._process = ChildProcess(self._launch())
            try:
                await self._await_ready(process, deadline)
            except NotReadyError as error:
                await uninterrupted(self._end(process, immediate=True))
                if deadline.remaining_s <= 0 or not self._is_worth_retry(process):
                    raise self._start_error(process, str(error)) from None
            except BaseException:
                await uninterrupted(self._end(process, immediate=True))
                raise
            else:
                return
            if may_move and self._lost_its_port(process):
                self.port = ports.free_port()
            await asyncio.sleep(_RETRY_PERIOD_S)

    async def _await_ready(self, process: ChildProcess, deadline: Deadline) -> None:
        period_s = _HEALTH_PERIOD_S
        problem = "it was never probed"
        while deadline.remaining_s > 0:
            try:
                await self._probe_while_alive(process, deadline)
            except (OSError, NotReadyError) as error:
                problem = str(error) or repr(error)
            else:
                problem = ""
            # Also after a good answer: it could be another process's, on the same port.
            if process.exit_status is not None:
                raise NotReadyError(f"it ended with status {process.exit_status}")
            if not problem:
                return
            await asyncio.sleep(period_s)
            period_s = min(period_s * 1.5, _HEALTH_PERIOD_MAX_S)
        raise NotReadyError(f"it is not ready after {self._start_timeout_s:g} s ({problem})")

    async def _probe_while_alive(self, process: ChildProcess, deadline: Deadline) -> None:
        loop = asyncio.get_running_loop()
        patience_s = min(_PROBE_TIMEOUT_S, deadline.remaining_s)
        async with asyncio.timeout(patience_s) as limit:

            def give_up() -> None:
                if not limit.expired():
                    limit.reschedule(loop.time())

            # Otherwise a stranger who took the port and says nothing would use up the patience.
            with calling_at_end(process.pid, give_up):
                await self._probe(process)

    def _is_worth_retry(self, process: ChildProcess) -> bool:
        tail = process.log_tail()
        return any(mark in tail for mark in (*self.conflict_marks, *self.retry_marks))

    def _lost_its_port(self, process: ChildProcess) -> bool:
        tail = process.log_tail()
        return any(mark in tail for mark in self.conflict_marks)

    def _start_error(self, process: ChildProcess, problem: str) -> ServerStartError:
        return ServerStartError(self.name, problem, self.log_file, process.log_tail())
