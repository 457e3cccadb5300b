"""Services and their supervision: ready handshake, death of one stops all, ordered stop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from foundation.clock import Clock, SystemClock
from foundation.errors import InternalError

_log = structlog.stdlib.get_logger(__name__)


class Service(Protocol):
    """A part of a process with a life of its own: a server, a loop, a session."""

    @property
    def name(self) -> str:
        """Name of the service's task, for logs and debuggers."""
        ...

    async def start(self) -> None:
        """Get ready to work and return; raise if that is impossible."""
        ...

    async def run(self) -> None:
        """Work until `stop`. Returning or raising earlier means that the service died."""
        ...

    async def stop(self) -> None:
        """Finish what is in hand and return only when stopped.

        Idempotent, and legal before `start` and `run`.
        """
        ...


class ServiceDiedError(InternalError):
    """A service's `run` ended although nobody had asked it to stop."""

    reason = "SERVICE_DIED"


@dataclass(slots=True)
class StopRequest:
    """Asks for the ordered shutdown; safe to make more than once, the first reason counts."""

    reason: str = ""
    _event: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def requested(self) -> bool:
        """Whether somebody asked."""
        return self._event.is_set()

    def make(self, reason: str) -> None:
        """Ask for the shutdown."""
        if not self.requested:
            self.reason = reason
            self._event.set()

    async def wait(self) -> None:
        """Return once somebody has asked."""
        await self._event.wait()


async def _ready_at_once() -> None:
    return


@dataclass(frozen=True, slots=True)
class Supervision:
    """How to supervise: the whole shutdown's grace, when the process counts as ready, hooks.

    `ready_gate` is awaited after every service has started (an agent waits for its first
    handshake there); then `on_ready` is called, once. `on_stopping` is called when the
    shutdown begins.
    """

    shutdown_grace_s: float = 15.0
    ready_gate: Callable[[], Awaitable[None]] = _ready_at_once
    on_ready: Callable[[], None] = lambda: None
    on_stopping: Callable[[], None] = lambda: None
    clock: Clock = field(default_factory=SystemClock)


async def run_services(
    services: Sequence[Service], stop_request: StopRequest, supervision: Supervision
) -> None:
    """Start the services in order, run each from its start on, stop them in reverse order.

    A service that fails to start, raises, or returns without being asked to, stops all the
    others in order; then an ExceptionGroup of what they died of is raised. Cancellation
    counts as a request to stop: they still stop in order, and then it is raised again.
    """
    async with asyncio.TaskGroup() as group:
        supervisor = _Supervisor(group, stop_request, supervision)
        starting = group.create_task(supervisor.start_all(services), name="start-up")
        try:
            await stop_request.wait()
        finally:
            stop_request.make("the process is ending")
            starting.cancel()
            await _finish(supervisor.stop_all(starting))
    if supervisor.failures:
        raise ExceptionGroup("services died", supervisor.failures)


class _Supervisor:
    """Keeps what has started; turns the end of one service into a request to stop all."""

    def __init__(
        self, group: asyncio.TaskGroup, stop_request: StopRequest, supervision: Supervision
    ) -> None:
        self._group = group
        self._stop_request = stop_request
        self._supervision = supervision
        self._started: list[Service] = []
        self._running: list[asyncio.Task[None]] = []
        self.failures: list[Exception] = []

    async def start_all(self, services: Sequence[Service]) -> None:
        try:
            for service in services:
                await self._start(service)
            await self._supervision.ready_gate()
            if not self._stop_request.requested:
                _log.info("process_ready")
                self._supervision.on_ready()
        except Exception as error:  # noqa: BLE001 - kept, and raised after the ordered stop
            _log.exception("start_up_failed")
            self._fail("start-up", error)

    async def _start(self, service: Service) -> None:
        # Noted before it has started: a half-started service has to be stopped as well.
        self._started.append(service)
        await service.start()
        task = self._group.create_task(self._run(service), name=service.name)
        self._running.append(task)
        _log.info("service_started", service=service.name)

    async def _run(self, service: Service) -> None:
        try:
            await service.run()
        except asyncio.CancelledError:
            self._note_end(service.name, "was cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - kept, and raised after the ordered stop
            _log.exception("service_died", service=service.name)
            self._fail(service.name, error)
        else:
            self._note_end(service.name, "ended")

    def _note_end(self, name: str, how: str) -> None:
        if not self._stop_request.requested:
            self._fail(name, ServiceDiedError(f"service {name} {how} without being asked to stop"))

    def _fail(self, name: str, error: Exception) -> None:
        # Kept instead of raised: the group would cancel the others before they stop in order.
        self.failures.append(error)
        self._stop_request.make(f"{name} failed")

    async def stop_all(self, starting: asyncio.Task[None]) -> None:
        _log.info("process_stopping", why=self._stop_request.reason)
        self._supervision.on_stopping()
        clock = self._supervision.clock
        deadline_s = clock.monotonic() + self._supervision.shutdown_grace_s
        # A start in progress unwinds first, so that no service starts and stops at once.
        await asyncio.wait({starting}, timeout=self._supervision.shutdown_grace_s)
        for service in reversed(self._started):
            await self._stop(service, deadline_s - clock.monotonic())
        for task in self._running:
            task.cancel()

    async def _stop(self, service: Service, grace_s: float) -> None:
        try:
            async with asyncio.timeout(max(grace_s, 0.0)):
                await service.stop()
            _log.info("service_stopped", service=service.name)
        except TimeoutError:
            _log.error("service_stop_timed_out", service=service.name)
        except Exception as error:  # noqa: BLE001 - kept; the other services still have to stop
            _log.exception("service_stop_failed", service=service.name)
            self.failures.append(error)


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run the work to its end in a task of its own, also when we are cancelled meanwhile."""
    task = asyncio.get_running_loop().create_task(work, name="shutdown")
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
