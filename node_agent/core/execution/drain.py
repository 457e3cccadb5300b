"""Draining: by the control plane's order, which outlives a restart, and at the process's end."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from node_agent.core.execution.application import AttemptRunner
from node_agent.core.execution.readiness import AgentReadiness
from node_agent.core.journal.domain import DrainMark
from node_agent.core.session.mailbox import Mailbox

_log = structlog.stdlib.get_logger(__name__)


class DrainControl:
    """Obeys DRAIN and UNDRAIN, once they are stored."""

    def __init__(self, readiness: AgentReadiness, runner: AttemptRunner, mailbox: Mailbox) -> None:
        self.readiness = readiness
        self._runner = runner
        self._mailbox = mailbox
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, mark: DrainMark) -> None:
        """Take no new work, and stop what runs after the grace, if there is one."""
        _log.info("drain_begun", grace_s=mark.grace_s)
        self.readiness.drain = mark
        self._cancel_timer()
        if mark.grace_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(mark.grace_s, self._runner.stop_for_drain)
        self._mailbox.want_heartbeat()

    def end(self) -> None:
        """Take work again."""
        _log.info("drain_ended")
        self.readiness.drain = None
        self._cancel_timer()
        self._mailbox.want_heartbeat()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    close = _cancel_timer


class FinalDrain:
    """A Service that does nothing until the process stops: then it drains, and flushes the outbox.

    It is started last, so that it is stopped first, while everything else still works.
    """

    name = "final-drain"

    def __init__(
        self,
        control: DrainControl,
        runner: AttemptRunner,
        mailbox: Mailbox,
        flush: Callable[[], Awaitable[None]],
        end_sending: Callable[[], None],
        *,
        grace_s: float,
        flush_s: float,
    ) -> None:
        """Attempts get `grace_s`, then `flush` gets `flush_s`; then `end_sending` is called."""
        self._control = control
        self._runner = runner
        self._mailbox = mailbox
        self._flush = flush
        self._end_sending = end_sending
        self._grace_s = grace_s
        self._flush_s = flush_s
        self._done = asyncio.Event()

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def run(self) -> None:
        """Wait for the end."""
        await self._done.wait()

    async def stop(self) -> None:
        """Drain and flush, once."""
        if self._done.is_set():
            return
        self._done.set()
        self._control.readiness.is_shutting_down = True
        self._control.close()
        self._mailbox.want_heartbeat()
        await self._runner.drain(self._grace_s)
        try:
            async with asyncio.timeout(self._flush_s):
                await self._flush()
        except TimeoutError:
            _log.warning("events_not_flushed", why="they stay in the journal for the next start")
        finally:
            self._end_sending()
