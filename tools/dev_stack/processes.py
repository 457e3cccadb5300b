"""One supervised child process: its start, log file, signals and end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.dev_stack import launch as launcher
from tools.dev_stack.errors import UnsupportedPlatformError
from tools.dev_stack.identity import Identity

_LOG_BYTES_MAX: Final = 16 * 1024 * 1024
_TAIL_BYTES: Final = 8 * 1024
_TAIL_LINES: Final = 40


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run: an absolute command, its log, and the signal it gets if this process dies."""

    command: tuple[str, ...]
    log_file: Path
    death_signal: signal.Signals = signal.SIGKILL
    environment: Mapping[str, str] = field(default_factory=dict)
    identity: Identity = field(default_factory=Identity)


class ChildProcess:
    """A child that never outlives this process, even if this process is killed.

    The kernel watches the *thread* that started the child, so start it from one that lives as
    long as the child shall. The object belongs to no event loop: it may be made under one and
    awaited under another.
    """

    def __init__(self, launch: Launch) -> None:
        """Start the child; it is running, though not ready, on return.

        Raises:
            UnsupportedPlatformError: not Linux.
        """
        if not hasattr(os, "pidfd_open"):
            raise UnsupportedPlatformError(sys.platform)
        self._log_file = launch.log_file
        self._log_start = _rotate(launch.log_file)
        self._popen = _spawn(launch)

    @property
    def pid(self) -> int:
        """The process id, also after the end."""
        return self._popen.pid

    @property
    def exit_status(self) -> int | None:
        """None while running; then the exit status, negative for the signal that ended it."""
        return self._popen.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the child has ended."""
        self._popen.send_signal(number)

    async def wait(self) -> int:
        """Wait for the end and answer the exit status."""
        if self.exit_status is None:
            await wait_for_end(self.pid)
        return self._popen.wait()

    async def ends_within(self, timeout_s: float) -> bool:
        """Wait for the end, at most `timeout_s`; answer whether it came."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait()
        except TimeoutError:
            return False
        return True

    async def end(self, *signals: tuple[signal.Signals, float]) -> None:
        """Send each signal in turn, waiting its seconds for the end, and SIGKILL at last."""
        for number, timeout_s in signals:
            self.send(number)
            if await self.ends_within(timeout_s):
                return
        self.send(signal.SIGKILL)
        await self.wait()

    def log_tail(self) -> str:
        """The last lines that this run wrote to its log."""
        with self._log_file.open("rb") as log:
            size_bytes = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size_bytes - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:]) or "(nothing was written)"


async def wait_for_end(pid: int) -> None:
    """Wait until the process has ended, a child or not; at once if there is none."""
    ended = asyncio.Event()
    with calling_at_end(pid, ended.set):
        await ended.wait()


@contextlib.contextmanager
def calling_at_end(pid: int, callback: Callable[[], object]) -> Iterator[None]:
    """Call back once, in the running loop, if the process ends before the block does."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        loop.call_soon(callback)
        yield
        return

    def call() -> None:
        loop.remove_reader(descriptor)
        callback()

    loop.add_reader(descriptor, call)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def run_to_end(launch: Launch, timeout_s: float) -> tuple[int | None, str]:
    """Run a short program; answer its exit status (None: out of time, killed) and log tail."""
    child = ChildProcess(launch)
    try:
        ended = await child.ends_within(timeout_s)
        return child.exit_status if ended else None, child.log_tail()
    finally:
        await uninterrupted(child.end())


def launcher_command(launch: Launch) -> list[str]:
    """The command that ties a child of this process to it and then becomes `launch.command`."""
    order = {
        "parent_pid": os.getpid(),
        "death_signal": launch.death_signal.value,
        "identity": dataclasses.asdict(launch.identity),
    }
    script = str(Path(launcher.__file__))
    return [sys.executable, "-I", "-S", script, json.dumps(order), *launch.command]


def _spawn(launch: Launch) -> subprocess.Popen[bytes]:
    with launch.log_file.open("ab") as log:
        return subprocess.Popen(
            launcher_command(launch),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Relative paths are refused by construction, and the parent's folder may be closed
            # to the child's user.
            cwd="/",
            env=_base_environment() | dict(launch.environment),
            # Ctrl-C in a terminal is for the parent, which stops its children in order.
            start_new_session=True,
        )


def _base_environment() -> dict[str, str]:
    """A small environment: PG*, RCLONE_* and proxy variables must not steer the servers."""
    passed = ("PATH", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in passed if name in os.environ}
    return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _rotate(log_file: Path) -> int:
    """Keep one older log beside the current one; answer where this run's lines begin."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        size_bytes = log_file.stat().st_size
        if size_bytes <= _LOG_BYTES_MAX:
            return size_bytes
        log_file.replace(log_file.with_name(f"{log_file.name}.1"))
    return 0


async def uninterrupted(work: Coroutine[object, object, None]) -> None:
    """Await `work` to its end even if cancelled meanwhile; the cancellation is raised after it."""
    task = asyncio.create_task(work, name="uninterrupted work")
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


class Deadline:
    """A point of monotonic time, shared by the steps of one start."""

    def __init__(self, timeout_s: float) -> None:
        """Begin now."""
        self._ends_at_s = time.monotonic() + timeout_s

    @property
    def remaining_s(self) -> float:
        """Seconds left; zero or less when it has passed."""
        return self._ends_at_s - time.monotonic()
