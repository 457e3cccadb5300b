"""The agent's session: one stream at a time, opened again with jitter for as long as it runs."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

import structlog

from foundation.backoff import BackoffPolicy
from foundation.errors import MessageTooLargeError
from foundation.failpoints import failpoint
from node_agent.core.session.event_sender import EventSender
from node_agent.core.session.lease_clock import LeaseClock, SessionNumber
from node_agent.core.session.mailbox import Mailbox
from node_agent.core.session.messages import (
    CommandAck,
    Commands,
    Down,
    EventAck,
    EventBatch,
    GoAway,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Introduction,
    Up,
    Welcome,
)
from node_agent.core.session.ports import (
    Attempts,
    CommandIntake,
    Machine,
    ReadinessSource,
    SessionStream,
    SessionTransport,
)
from node_agent.errors import SessionLostError, SessionRefusedError

# Beats a little early rather than late, and never in step with other nodes.
_BEAT_JITTER: Final = 0.05
_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Times in seconds; what depends on the lease TTL is assumed until Welcome names it."""

    backoff: BackoffPolicy
    leave_patience_s: float = 1.0
    assumed_lease_ttl_s: float = 60.0


@dataclass(frozen=True, slots=True)
class SessionParts:
    """Those with whom the session works."""

    transport: SessionTransport
    attempts: Attempts
    intake: CommandIntake
    events: EventSender
    mailbox: Mailbox
    clock: LeaseClock
    machine: Machine
    readiness: ReadinessSource


@dataclass(slots=True)
class _Live:
    """One session: its stream, its numbers, and whether it is to be left."""

    stream: SessionStream
    number: SessionNumber
    welcome: Welcome
    beats: int = 0
    next_beat_at_s: float = 0.0


class _LeftError(Exception):
    """The session ends in order: asked to go, or by the server."""


class SessionClient:
    """A Service that keeps a session with the control plane until it is stopped."""

    name = "session"

    def __init__(
        self,
        config: SessionConfig,
        introduction: Introduction,
        parts: SessionParts,
        random: Random,
    ) -> None:
        self._config = config
        self._introduction = introduction
        self._parts = parts
        self._random = random
        self._lease_ttl_s = config.assumed_lease_ttl_s
        self._patience_s = self._lease_ttl_s / 6
        self._failures = 0
        self._goes_at_once = False
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._running = False
        self.welcomed = asyncio.Event()
        """Set by the first Welcome of the process."""

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def run(self) -> None:
        """Open sessions one after the other until `stop`; raises SessionRefusedError."""
        self._running = True
        try:
            while not self._stopping.is_set():
                await self._serve_once()
                await self._back_off()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Leave the session in order. Idempotent, legal before `run`."""
        self._stopping.set()
        if self._running:
            await self._ended.wait()

    # --- One session. ---

    async def _serve_once(self) -> None:
        try:
            async with self._parts.transport.open() as stream:
                live = await self._open_unless_stopping(stream)
                if live is None:
                    return
                try:
                    await self._serve(live)
                finally:
                    self._parts.events.session_closed()
        except SessionLostError as error:
            self._failures += 1
            _log.warning("session_lost", error=error.message, failures=self._failures)

    async def _open_unless_stopping(self, stream: SessionStream) -> _Live | None:
        """Open the session; None if asked to stop before Welcome came."""
        opening = asyncio.create_task(self._open(stream), name="session-opening")
        stopping = asyncio.create_task(self._stopping.wait(), name="session-not-opening")
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return await opening if opening.done() else None
        finally:
            for task in (opening, stopping):
                task.cancel()
            await asyncio.wait({opening, stopping})

    async def _open(self, stream: SessionStream) -> _Live:
        await self._parts.intake.new_session()
        hello = self._hello()
        number = self._parts.clock.hello_sent(self._parts.machine.boot_clock_s())
        self._parts.mailbox.begin_session()
        try:
            async with asyncio.timeout(self._patience_s):
                await failpoint("agent.hello.before")
                await stream.write(0, hello)
                answer = await stream.read()
        except TimeoutError:
            self._patience_s = min(2 * self._patience_s, self._lease_ttl_s / 2)
            raise SessionLostError("no Welcome came in time: trying another address") from None
        if not isinstance(answer, Welcome):
            raise SessionLostError(f"Hello was answered with {type(answer).__name__}")
        return self._welcomed(stream, number, answer)

    def _hello(self) -> Hello:
        parts = self._parts
        return Hello(
            introduction=self._introduction,
            inventory=parts.machine.inventory(),
            last_command_sequence=parts.intake.last_sequence,
            held=parts.attempts.held(),
            job_credits=parts.attempts.credits_for_hello(),
            readiness=parts.readiness.readiness(),
        )

    def _welcomed(self, stream: SessionStream, number: SessionNumber, welcome: Welcome) -> _Live:
        self._failures = 0
        self._lease_ttl_s = welcome.lease_ttl_s
        self._patience_s = self._lease_ttl_s / 6
        stream.limit_messages(welcome.message_bytes_max)
        self._parts.clock.welcomed(number, welcome.lease_ttl_s)
        self._parts.attempts.check_deadlines()
        for lease, verdict in welcome.verdicts:
            self._parts.attempts.judged(number, lease, verdict)
        self._parts.events.session_opened()
        self.welcomed.set()
        _log.info(
            "session_opened", generation=welcome.generation, server_version=welcome.server_version
        )
        # The first heartbeat goes at once: it proves to the server that Welcome arrived.
        return _Live(stream, number, welcome)

    async def _serve(self, live: _Live) -> None:
        ends: list[Exception] = []
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(live, group), name="session-reader")
                group.create_task(self._write(live), name="session-writer")
                group.create_task(self._watch(live), name="session-watch")
                group.create_task(self._leave_when_stopping(live, reader), name="session-leaving")
        except* _LeftError:
            _log.info("session_left", generation=live.welcome.generation)
        except* SessionRefusedError as refused:
            ends[:0] = flattened(refused)
        except* SessionLostError as lost:
            ends += flattened(lost)
        if ends:
            # A refusal, if there is one, for that ends the process.
            raise ends[0]

    # --- Reading. ---

    async def _read(self, live: _Live, group: asyncio.TaskGroup) -> None:
        while True:
            message = await live.stream.read()
            self._parts.attempts.check_deadlines()
            if message is None:
                raise _LeftError
            if isinstance(message, GoAway):
                group.create_task(self._go_away(live, message), name="session-go-away")
            else:
                self._take(live, message)

    def _take(self, live: _Live, message: Down) -> None:
        match message:
            case Commands(commands):
                self._parts.intake.offer(live.number, commands)
            case HeartbeatReply():
                self._take_reply(live, message)
            case EventAck(results):
                self._parts.events.acked(results)
            case _:
                raise SessionLostError(f"{type(message).__name__} has no place in this session")

    def _take_reply(self, live: _Live, reply: HeartbeatReply) -> None:
        self._parts.clock.heartbeat_answered(live.number, reply.number)
        for lease in reply.renewed:
            self._parts.attempts.renewed(live.number, lease, reply.number)
        for lease in reply.lost:
            self._parts.attempts.lost(lease)

    # --- Writing. ---

    async def _write(self, live: _Live) -> None:
        mailbox = self._parts.mailbox
        while True:
            if mailbox.take_heartbeat_wish() or self._beat_in_s(live) <= 0:
                await self._beat(live)
            for message in mailbox.take():
                if self._beat_in_s(live) <= 0:
                    await self._beat(live)
                await self._send(live, message)
            waits = (self._beat_in_s(live), mailbox.next_progress_in_s())
            await mailbox.wakeup.wait(min(one for one in waits if one is not None))

    def _beat_in_s(self, live: _Live) -> float:
        return live.next_beat_at_s - self._parts.machine.boot_clock_s()

    async def _beat(self, live: _Live) -> None:
        parts = self._parts
        live.beats += 1
        now_s = parts.machine.boot_clock_s()
        interval_s = live.welcome.heartbeat_interval_s
        live.next_beat_at_s = now_s + interval_s * (1.0 - _BEAT_JITTER * self._random.random())
        heartbeat = Heartbeat(
            live.beats,
            parts.clock.held(),
            parts.readiness.readiness(),
            parts.events.depth,
            parts.machine.usage(),
        )
        parts.clock.heartbeat_sent(live.number, live.beats, now_s)
        await live.stream.write(live.welcome.generation, heartbeat)

    async def _send(self, live: _Live, message: Up) -> None:
        point = _failpoint_of(message)
        if point is not None:
            await failpoint(f"{point}.before")
        if isinstance(message, EventBatch):
            await self._send_events(live, message)
        else:
            await live.stream.write(live.welcome.generation, message)
        if point is not None:
            await failpoint(f"{point}.after")

    async def _send_events(self, live: _Live, batch: EventBatch) -> None:
        try:
            await live.stream.write(live.welcome.generation, batch)
        except MessageTooLargeError as error:
            if len(batch.events) == 1:
                _log.error(
                    "event_too_large", event_id=batch.events[0].event_id, error=error.message
                )
                self._parts.events.too_large(batch.events, error.message)
                return
            for event in batch.events:
                await self._send_events(live, EventBatch((event,)))

    # --- Ending. ---

    async def _watch(self, live: _Live) -> None:
        """Leave a server that no longer answers heartbeats, while there is lease time to move."""
        while True:
            due_at_s = self._parts.clock.answer_overdue_at_s()
            now_s = self._parts.machine.boot_clock_s()
            self._parts.attempts.check_deadlines()
            if due_at_s is None:
                return
            if now_s >= due_at_s:
                self._goes_at_once = True
                raise SessionLostError(
                    f"session {live.welcome.generation}: the server left heartbeats unanswered "
                    "for a third of the lease: trying another address"
                )
            await asyncio.sleep(due_at_s - now_s)

    async def _leave_when_stopping(self, live: _Live, reader: "asyncio.Task[None]") -> None:
        await self._stopping.wait()
        await self._leave(live, reader)

    async def _go_away(self, live: _Live, message: GoAway) -> None:
        wait_s = message.reconnect_within_s * self._random.random()
        _log.info("session_go_away", reason=message.reason, leaves_in_s=round(wait_s, 3))
        await asyncio.sleep(wait_s)
        self._goes_at_once = True
        await self._leave(live, None)

    async def _leave(self, live: _Live, reader: "asyncio.Task[None] | None") -> None:
        """Close our side, and give the server a moment to close its own."""
        await live.stream.finish()
        if reader is not None:
            await asyncio.wait({reader}, timeout=self._config.leave_patience_s)
        raise _LeftError

    async def _back_off(self) -> None:
        if self._goes_at_once:
            self._goes_at_once = False
            return
        delay_s = self._config.backoff.delay_s(max(self._failures, 1), self._random)
        if self._parts.clock.held():
            # Leases must not run out while we wait.
            delay_s = min(delay_s, self._lease_ttl_s / 12 * (0.5 + self._random.random() / 2))
        try:
            async with asyncio.timeout(delay_s):
                await self._stopping.wait()
        except TimeoutError:
            return


def _failpoint_of(message: Up) -> str | None:
    match message:
        case CommandAck():
            return "agent.ack"
        case EventBatch():
            return "agent.send"
        case _:
            return None


def flattened(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    """Yield the exceptions of a group and of the groups in it."""
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from flattened(one)
        else:
            yield one
