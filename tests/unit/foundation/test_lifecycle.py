"""Supervision: order of start and stop, deaths, grace, signals, and readiness."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from foundation.lifecycle import (
    ServiceDiedError,
    StopRequest,
    Supervision,
    SystemdNotifier,
    SystemdWatchdog,
    run_services,
)


class Recorded:
    """A service that notes what happens to it, and misbehaves as told."""

    def __init__(self, name: str, events: list[str], misbehaviour: str = "") -> None:
        self.name = name
        self._events = events
        self._misbehaviour = misbehaviour
        self._stopping = asyncio.Event()
        self.entered = asyncio.Event()
        self.may_stop = asyncio.Event()

    async def start(self) -> None:
        """Start, fail to, or hang."""
        self.entered.set()
        self._events.append(f"start {self.name}")
        if self._misbehaviour == "fails to start":
            raise OSError(f"{self.name} has no port")
        if self._misbehaviour == "hangs in start":
            await asyncio.Event().wait()

    async def run(self) -> None:
        """Work until stopped, or die."""
        match self._misbehaviour:
            case "dies":
                raise OSError(f"{self.name} lost its disk")
            case "ends":
                return
            case "is cancelled":
                raise asyncio.CancelledError
        try:
            await self._stopping.wait()
        finally:
            self._events.append(f"ended {self.name}")

    async def stop(self) -> None:
        """Stop, fail to, or hang."""
        self._events.append(f"stop {self.name}")
        if self._misbehaviour == "fails to stop":
            raise OSError(f"{self.name} cannot flush")
        if self._misbehaviour == "hangs in stop":
            await asyncio.Event().wait()
        if self._misbehaviour == "flushes slowly":
            await self.may_stop.wait()
        self._stopping.set()


def trio(events: list[str], misbehaviour: str) -> list[Recorded]:
    """Make three services, the middle one of which misbehaves."""
    return [
        Recorded("a", events),
        Recorded("b", events, misbehaviour),
        Recorded("c", events),
    ]


async def test_start_ready_stop_in_order() -> None:
    """Services start in order, the process is ready after all, and they stop in reverse."""
    events: list[str] = []
    stop = StopRequest()

    def ready() -> None:
        events.append("ready")
        stop.make("enough")

    supervision = Supervision(on_ready=ready, on_stopping=lambda: events.append("stopping"))
    await run_services(trio(events, ""), stop, supervision)
    started = ["start a", "start b", "start c", "ready", "stopping"]
    assert events[:5] == started
    assert [one for one in events if one.startswith("stop ")] == ["stop c", "stop b", "stop a"]
    assert {"ended a", "ended b", "ended c"} < set(events)


@pytest.mark.parametrize(
    ("misbehaviour", "error"),
    [("dies", OSError), ("ends", ServiceDiedError), ("is cancelled", ServiceDiedError)],
)
async def test_a_dead_service_stops_the_process_in_order(
    misbehaviour: str, error: type[Exception]
) -> None:
    """When a service dies, ends or is cancelled, the others stop in order, and then it shows."""
    events: list[str] = []
    with pytest.raises(ExceptionGroup) as caught:
        await run_services(trio(events, misbehaviour), StopRequest(), Supervision())
    assert caught.group_contains(error)
    stops = [one for one in events if one.startswith("stop ")]
    assert stops in (["stop c", "stop b", "stop a"], ["stop b", "stop a"])
    assert "ended a" in events


async def test_a_failed_start_stops_what_had_started() -> None:
    """The service that failed to start and those before it are stopped; later ones never start."""
    events: list[str] = []
    with pytest.raises(ExceptionGroup) as caught:
        await run_services(trio(events, "fails to start"), StopRequest(), Supervision())
    assert caught.group_contains(OSError, match="no port")
    assert "start c" not in events
    assert [one for one in events if one.startswith("stop ")] == ["stop b", "stop a"]


async def test_a_stop_request_interrupts_a_hanging_start() -> None:
    """A process told to stop while a service is starting does not wait for it for ever."""
    events: list[str] = []
    stop = StopRequest()
    async with asyncio.TaskGroup() as group:
        services = trio(events, "hangs in start")
        group.create_task(run_services(services, stop, Supervision()), name="supervised")
        await services[1].entered.wait()
        stop.make("changed my mind")
    assert [one for one in events if one.startswith("stop ")] == ["stop b", "stop a"]


async def test_the_grace_bounds_a_hanging_stop() -> None:
    """A service that does not stop is given up after the grace, and the others still stop."""
    events: list[str] = []
    stop = StopRequest()
    supervision = Supervision(shutdown_grace_s=0.05, on_ready=lambda: stop.make("enough"))
    await run_services(trio(events, "hangs in stop"), stop, supervision)
    assert [one for one in events if one.startswith("stop ")] == ["stop c", "stop b", "stop a"]
    assert "ended b" in events


async def test_a_failing_stop_is_raised_after_the_others_stopped() -> None:
    """An error while stopping does not keep the others from stopping, and is not lost."""
    events: list[str] = []
    stop = StopRequest()
    supervision = Supervision(on_ready=lambda: stop.make("enough"))
    with pytest.raises(ExceptionGroup) as caught:
        await run_services(trio(events, "fails to stop"), stop, supervision)
    assert caught.group_contains(OSError, match="cannot flush")
    assert "stop a" in events


async def test_cancellation_still_stops_in_order() -> None:
    """A supervisor that is cancelled, twice even, returns only when the last write is done."""
    events: list[str] = []
    ready = asyncio.Event()
    services = trio(events, "flushes slowly")
    task = asyncio.create_task(
        run_services(services, StopRequest(), Supervision(on_ready=ready.set)), name="supervised"
    )
    await ready.wait()
    for _ in range(2):
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
    assert not task.done()
    assert "ended b" not in events
    services[1].may_stop.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [one for one in events if one.startswith("stop ")] == ["stop c", "stop b", "stop a"]
    assert "ended b" in events


async def test_ready_waits_for_its_gate() -> None:
    """The process is not ready before the gate opens, though every service has started."""
    events: list[str] = []
    stop, gate, waiting = StopRequest(), asyncio.Event(), asyncio.Event()

    async def handshake() -> None:
        waiting.set()
        await gate.wait()

    def ready() -> None:
        events.append("ready")
        stop.make("enough")

    async with asyncio.TaskGroup() as group:
        supervision = Supervision(ready_gate=handshake, on_ready=ready)
        group.create_task(run_services([Recorded("a", events)], stop, supervision), name="s")
        await waiting.wait()
        assert "ready" not in events
        gate.set()
    assert "ready" in events


def test_only_the_first_reason_counts() -> None:
    """Repeated stop requests keep the first reason."""
    stop = StopRequest()
    stop.make("SIGTERM")
    stop.make("SIGINT")
    assert (stop.requested, stop.reason) == (True, "SIGTERM")


def listening(path: Path) -> socket.socket:
    """Listen as systemd does."""
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(path))
    receiver.settimeout(20.0)
    return receiver


def test_systemd_is_told(tmp_path: Path) -> None:
    """Ready and stopping reach the socket that systemd names."""
    with listening(tmp_path / "notify") as receiver:
        notifier = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        notifier.ready()
        notifier.stopping()
        assert [receiver.recv(100), receiver.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_without_systemd_nothing_happens(tmp_path: Path) -> None:
    """No socket, or one that nobody listens on, is no error."""
    SystemdNotifier({}).ready()
    SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "absent")}).ready()


async def test_the_watchdog_gets_signs_until_stopped(tmp_path: Path) -> None:
    """Signs of life come repeatedly within the period, and end with the service."""
    with listening(tmp_path / "notify") as receiver:
        notifier = SystemdNotifier(
            {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000"}
        )
        watchdog = SystemdWatchdog(notifier)
        async with asyncio.TaskGroup() as group:
            group.create_task(watchdog.run(), name="watchdog")
            for _ in range(3):
                assert await asyncio.to_thread(receiver.recv, 100) == b"WATCHDOG=1"
            await watchdog.stop()


async def test_the_watchdog_gives_no_sign_while_its_check_hangs(tmp_path: Path) -> None:
    """A loop that runs is not enough: what the process stands on has to answer first."""
    answers = asyncio.Event()
    with listening(tmp_path / "notify") as receiver:
        notifier = SystemdNotifier(
            {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000"}
        )
        asked = asyncio.Event()

        async def check() -> None:
            asked.set()
            await answers.wait()

        watchdog = SystemdWatchdog(notifier, check)
        async with asyncio.TaskGroup() as group:
            group.create_task(watchdog.run(), name="watchdog")
            await asked.wait()
            receiver.settimeout(0.0)
            with pytest.raises(BlockingIOError):
                receiver.recv(100)
            receiver.settimeout(None)
            answers.set()
            assert await asyncio.to_thread(receiver.recv, 100) == b"WATCHDOG=1"
            await watchdog.stop()


async def test_a_failed_check_ends_the_watchdog(tmp_path: Path) -> None:
    """What makes the process useless ends it at once, not after the period."""
    notifier = SystemdNotifier({"WATCHDOG_USEC": "30000"})

    async def check() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await SystemdWatchdog(notifier, check).run()


def test_a_watchdog_for_another_process_is_not_ours() -> None:
    """Variables inherited from a parent are ignored."""
    environ = {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": str(os.getpid() + 1)}
    assert SystemdNotifier(environ).watchdog_s is None
    assert SystemdNotifier({"WATCHDOG_USEC": "2000000"}).watchdog_s == 2.0


PROGRAM = textwrap.dedent(
    """
    import asyncio, sys
    from foundation.lifecycle import *

    class Part:
        name = "part"
        def __init__(self): self.stopping = asyncio.Event()
        async def start(self): pass
        async def run(self):
            if sys.argv[1] == "dies": raise OSError("no disk")
            await self.stopping.wait()
        async def stop(self):
            print("flushed", flush=True)
            self.stopping.set()

    async def main(stop_request):
        ready = lambda: print("ready", flush=True)
        await run_services([Part()], stop_request, Supervision(on_ready=ready))

    sys.exit(run_process(ProcessConfig("test", uvloop=sys.argv[2] == "uvloop"), main))
    """
)


def started(*arguments: str) -> subprocess.Popen[str]:
    """Start a process that runs one service."""
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_signal_stops_a_real_process_in_order(number: signal.Signals, loop: str) -> None:
    """SIGTERM and SIGINT, also twice, let services flush, and the exit status is 0."""
    with started("lives", loop) as process:
        assert process.stdout is not None
        while "ready" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(number)
        process.send_signal(number)
        assert "flushed" in process.stdout.read()
        assert process.wait(20.0) == 0


def test_a_dead_service_is_exit_status_1() -> None:
    """A process whose service died stops in order and exits with 1."""
    with started("dies", "uvloop") as process:
        assert process.stdout is not None
        assert "flushed" in process.stdout.read()
        assert process.wait(20.0) == 1
