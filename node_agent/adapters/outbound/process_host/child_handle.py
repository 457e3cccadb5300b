"""One child process as the agent sees it: its start, messages, log, and certain end."""

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Self

import psutil

from foundation.errors import ErrorCode, TdpError
from node_agent.adapters.outbound.process_host.config import ProcessHostConfig
from node_agent.adapters.outbound.process_host.frames import Frames
from node_agent.adapters.outbound.process_host.log_tail import LogTail
from node_agent.adapters.outbound.process_host.output_lines import OutputLines

_MODULE: Final = "node_agent.adapters.outbound.process_host.child"
_PASSED_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
# How long the last output of a child that has ended may take; a process of its own that it left
# behind can hold the pipe open for ever.
_LAST_OUTPUT_S: Final = 0.5


class ChildStartError(TdpError):
    """A child process did not come up; the message ends with what it wrote."""

    reason = "CHILD_START_FAILED"
    retryable = True
    code = ErrorCode.UNAVAILABLE


class _Pipes(asyncio.SubprocessProtocol):
    """Takes the child's output, and notes its end."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        loop = asyncio.get_running_loop()
        self.tail = LogTail()
        self.lines = OutputLines(on_line)
        self.exited: asyncio.Future[None] = loop.create_future()
        self.silent: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, _descriptor: int, data: bytes) -> None:
        self.tail.write(data)
        self.lines.write(data)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.silent.done():
            self.silent.set_result(None)


class ChildHandle:
    """A running child in a session of its own; it never outlives the agent."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, pipes: _Pipes, frames: Frames
    ) -> None:
        """Take a started process; use `start`."""
        self._transport = transport
        self._pipes = pipes
        self.frames = frames
        self.attempt_count = 0
        self._killed = False

    @classmethod
    async def start(cls, config: ProcessHostConfig, references: Sequence[str]) -> Self:
        """Start a child and wait until it has loaded the capabilities.

        Raises:
            ChildStartError: it ended, or was not ready in time.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            command = _command(config, references, theirs.fileno())
            transport, pipes = await asyncio.get_running_loop().subprocess_exec(
                partial(_Pipes, config.on_line),
                *command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=_environment(config),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        child = cls(transport, pipes, await Frames.over(ours))
        try:
            await child._until_ready(config.start_timeout_s)
        except BaseException:
            child.kill()
            await child.ended()
            raise
        return child

    async def _until_ready(self, timeout_s: float) -> None:
        problem = f"was not ready after {timeout_s} s"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                if await self.frames.read() is not None:
                    return
                await self.ended()
                problem = self.ending()
        raise ChildStartError(
            f"a child process for capabilities {problem}; repair what it wrote:\n{self.log_text()}"
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._transport.get_pid()

    @property
    def is_alive(self) -> bool:
        """Whether it has neither ended nor been killed."""
        return not self._killed and not self._pipes.exited.done()

    def kill(self) -> None:
        """Kill it and all of its session, at once; idempotent."""
        self._killed = True
        if self._transport.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.frames.close()

    async def ended(self) -> None:
        """Wait for its end, and for its last output."""
        await asyncio.shield(self._pipes.exited)
        await asyncio.wait([self._pipes.silent], timeout=_LAST_OUTPUT_S)
        self.frames.close()
        self._transport.close()

    def ending(self) -> str:
        """How it ended, in words."""
        status = self._transport.get_returncode()
        if status is None or status >= 0:
            return f"ended with exit status {status}"
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"was ended by {name}"

    def begin_log(self, attempt_id: str) -> None:
        """Forget what earlier attempts wrote; what comes from now on is this attempt's."""
        self._pipes.tail.clear()
        self._pipes.lines.begin(attempt_id)

    def log_text(self) -> str:
        """The end of what it wrote."""
        return self._pipes.tail.text()

    def measured(self) -> tuple[float, int]:
        """CPU seconds since its start, and bytes resident now; zeros if it has ended.

        Processes that it started count as its own.
        """
        try:
            process = psutil.Process(self.pid)
            used_s, memory_bytes = _measured(process)
            helpers = process.children(recursive=True)
        except psutil.Error:
            return 0.0, 0
        for helper in helpers:
            with contextlib.suppress(psutil.Error):
                helper_s, helper_bytes = _measured(helper)
                used_s += helper_s
                memory_bytes += helper_bytes
        return used_s, memory_bytes


def _measured(process: psutil.Process) -> tuple[float, int]:
    with process.oneshot():
        cpu = process.cpu_times()
        used_s = cpu.user + cpu.system + cpu.children_user + cpu.children_system
        return used_s, process.memory_info().rss


def _command(
    config: ProcessHostConfig, references: Sequence[str], descriptor: int
) -> tuple[str, ...]:
    settings = {
        "descriptor": descriptor,
        "parent_pid": os.getpid(),
        "references": list(references),
        "transfers": dataclasses.asdict(config.transfers),
    }
    return sys.executable, "-u", "-m", _MODULE, json.dumps(settings)


def _environment(config: ProcessHostConfig) -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    # The child finds what the agent finds, however the agent was started.
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**passed, "PYTHONPATH": paths, "PYTHONUTF8": "1", **config.environment}
