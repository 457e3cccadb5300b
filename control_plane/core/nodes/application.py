"""The use cases of node sessions: hello, acks, events, heartbeats, progress, leaving."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from control_plane.core.engine.ports import AdvancedBatch
from control_plane.core.measures import Measures, NoMeasures
from control_plane.core.nodes.domain import (
    CommandAck,
    EventFate,
    Hello,
    NodeEvent,
    OpenedSession,
    ProgressMark,
    SessionRef,
)
from control_plane.core.nodes.errors import ReplicaDrainingError
from control_plane.core.nodes.leases import LeaseFigures
from control_plane.core.nodes.ports import CommandStore, InboxStore, NodeStore
from control_plane.core.nodes.session import (
    GoAwayOut,
    Heartbeat,
    HeartbeatAnswer,
    LiveSessions,
    Session,
)
from control_plane.core.wakeups import LocalHints
from foundation.batching import Batcher, is_rejection
from foundation.clock import Clock
from foundation.errors import InternalError
from foundation.failpoints import failpoint
from foundation.wakeup import Wakeup

EVENT_REJECTED: Final = "EVENT_REJECTED"

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of sessions; sizes in items unless named otherwise."""

    window_size: int = 32
    credit_count_max: int = 10_000
    opening_count_max: int = 8
    event_queue_size_max: int = 20_000
    reconnect_within_s: float = 5.0


class NodeSessions:
    """What a replica does for the nodes in session with it."""

    def __init__(
        self,
        nodes: NodeStore,
        commands: CommandStore,
        inbox: InboxStore,
        advanced: Callable[[AdvancedBatch], None],
        live: LiveSessions,
        hints: LocalHints,
        clock: Clock,
        figures: LeaseFigures,
        limits: SessionLimits | None = None,
        measures: Measures | None = None,
    ) -> None:
        """`advanced` tells the engine's driver which executions the inbox has advanced."""
        self._measures = measures or NoMeasures()
        self.figures = figures
        self.limits = limits or SessionLimits()
        self.live = live
        self.tick_wakeup = Wakeup()
        self.progress = ProgressBoard()
        self._nodes = nodes
        self._commands = commands
        self._inbox = inbox
        self._advanced = advanced
        self._hints = hints
        self._clock = clock
        self._opening = asyncio.Semaphore(self.limits.opening_count_max)
        self._draining = False
        self._events: Batcher[NodeEvent, EventFate] = Batcher(
            "node-events", self._accept, queue_size_max=self.limits.event_queue_size_max
        )
        self._acks: Batcher[CommandAck, int] = Batcher("command-acks", self._ack)

    @property
    def name(self) -> str:
        """Name of the service's task."""
        return "node-sessions"

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def run(self) -> None:
        """Serve the queues of events and acks until `stop`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._events.run(), name="node-events")
            group.create_task(self._acks.run(), name="command-acks")

    async def stop(self) -> None:
        """Finish what is queued, end the sessions and note that they are over."""
        self._draining = True
        await self._events.stop()
        await self._acks.stop()
        for session in self.live:
            session.end(_draining())
            self.live.remove(session)
        await self.note_closed()

    async def go_away(self) -> None:
        """Ask every node to move to another replica, and take no new ones."""
        self._draining = True
        for session in self.live:
            session.offer(self._go_away_message())

    def _go_away_message(self) -> GoAwayOut:
        return GoAwayOut(self.limits.reconnect_within_s, "the server is about to stop")

    # --- A session's life. ---

    async def open(self, hello: Hello) -> tuple[Session, OpenedSession]:
        """Open a session for a node and make it the live one.

        Raises ReplicaDrainingError, NodeUnknownError.
        """
        async with self._opening:
            if self._draining:
                raise _draining()
            opened = await self._nodes.open_session(hello)
        session = Session(
            SessionRef(hello.node_id, opened.generation),
            credit_count=min(hello.job_credits, self.limits.credit_count_max),
            window_size=self.limits.window_size,
            missing=opened.missing,
            ready=hello.ready,
            not_ready_reason=hello.not_ready_reason,
            now_s=self._clock.monotonic(),
        )
        return session, opened

    def begin(self, session: Session) -> None:
        """Make an opened session live, once its Welcome is on the way."""
        self.live.add(session)
        if self._draining:  # Asked to leave between its Hello and now.
            session.offer(self._go_away_message())
        self._hints.capacity_freed()

    def close(self, session: Session) -> None:
        """Forget a session whose stream is over."""
        self.live.remove(session)
        self.tick_wakeup.set()

    async def note_closed(self) -> None:
        """Write that sessions are over."""
        closed = self.live.take_closed()
        if not closed:
            return
        try:
            await self._nodes.close_sessions(closed)
        except Exception:
            self.live.put_back_closed(closed)
            raise

    # --- What nodes say. ---

    async def heartbeat(self, session: Session, heartbeat: Heartbeat) -> None:
        """Take a heartbeat: answered at once without leases, else by the next tick."""
        session.heard(heartbeat, self._clock.monotonic())
        if session.missing:
            await self._confirm(session)
        if heartbeat.leases:
            self.tick_wakeup.set()
        else:
            session.offer(HeartbeatAnswer(heartbeat.number))

    async def _confirm(self, session: Session) -> None:
        """End what Hello omitted, now that the node has proved to have got Welcome."""
        aftermath = await self._nodes.lose_missing(session.ref, session.missing)
        session.missing = ()
        aftermath.give(self._hints)

    async def ack(self, session: Session, sequence: int) -> None:
        """Take a cumulative command ack; it is stored when this returns."""
        await failpoint("command.ack.before")
        await self._acks.submit(CommandAck(session.ref, sequence))
        await failpoint("command.ack.after")
        self._unblock(session, lambda: session.commands_acked(sequence))

    def credit(self, session: Session, credit_count: int) -> None:
        """Let the session take more RUN commands."""

        def add() -> None:
            total = session.credit_count + credit_count
            session.credit_count = min(total, self.limits.credit_count_max)

        self._unblock(session, add)

    async def events(self, events: Sequence[NodeEvent]) -> list[EventFate]:
        """Store events; return the fates of those that were stored, to be acknowledged.

        One that could not be stored now is left out: its node sends it again.
        """
        results = await asyncio.gather(
            *(self._events.submit(event) for event in events), return_exceptions=True
        )
        fates: list[EventFate] = []
        for event, result in zip(events, results, strict=True):
            if isinstance(result, EventFate):
                fates.append(result)
            elif isinstance(result, Exception) and _rejects(result):
                fates.append(await self._reject(event, result))
            else:
                _log.warning("event_not_stored", event_id=event.event_id, exc_info=result)
        return fates

    async def _reject(self, event: NodeEvent, error: Exception) -> EventFate:
        _log.warning("event_rejected", event_id=event.event_id, exc_info=error)
        return await self._inbox.reject(event, getattr(error, "reason", EVENT_REJECTED))

    def _unblock(self, session: Session, change: Callable[[], None]) -> None:
        was_blocked = session.is_blocked
        change()
        if was_blocked and not session.is_blocked:
            self._hints.nodes.add([session.ref.node_id])

    # --- Batches. ---

    async def _accept(self, events: Sequence[NodeEvent]) -> Sequence[EventFate]:
        accepted = await self._inbox.accept(events)
        self._measures.batch("inbox", len(events))
        accepted.aftermath.give(self._hints)
        self._advanced(accepted.advanced)
        return accepted.fates

    async def _ack(self, acks: Sequence[CommandAck]) -> Sequence[int]:
        return await self._commands.ack(acks)


class ProgressBoard:
    """The newest progress of each attempt, folded until the next write."""

    def __init__(self) -> None:
        """Start empty; `wakeup` is set by the first mark."""
        self.wakeup = Wakeup()
        self._marks: dict[tuple[str, int], ProgressMark] = {}

    def add(self, mark: ProgressMark) -> None:
        """Fold a report in; a lower one than before is ignored."""
        key = (mark.attempt_id, mark.lease_version)
        before = self._marks.get(key)
        if before is None or before.progress_percent < mark.progress_percent:
            self._marks[key] = mark
        if before is None:
            self.wakeup.set()

    def take(self) -> list[ProgressMark]:
        """Take everything folded so far."""
        marks, self._marks = list(self._marks.values()), {}
        return marks


def _rejects(error: Exception) -> bool:
    """Whether the event itself is at fault; a defect of ours is not, and is tried again."""
    return is_rejection(error) and not isinstance(error, InternalError)


def _draining() -> ReplicaDrainingError:
    return ReplicaDrainingError("this replica is about to stop: connect again", retry_delay_s=1.0)
