"""One live session as its replica remembers it, and all of a replica's sessions."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from control_plane.core.nodes.commands import CommandKind
from control_plane.core.nodes.domain import (
    EventFate,
    HeartbeatList,
    NodeState,
    SentCommand,
    SessionRef,
)
from control_plane.core.nodes.errors import NodeNotReadingError, SessionReplacedError
from control_plane.core.nodes.leases import ListedLease
from control_plane.core.scheduling.domain import Runtime
from control_plane.core.wakeups import LocalHints
from control_plane.limits import OUTGOING_COUNT_MAX
from foundation.errors import TdpError


@dataclass(frozen=True, slots=True)
class CommandsOut:
    """Commands to write, with the newest heartbeat heard before they were marked as SENT."""

    commands: Sequence[SentCommand]
    last_heartbeat_number: int


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat, after its renewals were committed."""

    number: int
    renewed: Sequence[ListedLease] = ()
    lost: Sequence[ListedLease] = ()


@dataclass(frozen=True, slots=True)
class EventsStored:
    """Events that were stored, with their fates."""

    fates: Sequence[EventFate]


@dataclass(frozen=True, slots=True)
class GoAwayOut:
    """Asks the node to reconnect at a random moment within this time, in seconds."""

    reconnect_within_s: float
    reason: str


Outgoing = CommandsOut | HeartbeatAnswer | EventsStored | GoAwayOut


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a node says every heartbeat interval."""

    number: int
    leases: Sequence[ListedLease]
    ready: bool
    not_ready_reason: str = ""
    disk_bytes: int = 0
    cpu_used_millis: int = 0
    memory_available_bytes: int = 0


class Session:
    """What one replica remembers of one stream; used by one event loop only."""

    def __init__(
        self,
        ref: SessionRef,
        *,
        credit_count: int,
        window_size: int,
        missing: Sequence[ListedLease],
        ready: bool,
        not_ready_reason: str,
        now_s: float,
    ) -> None:
        """`now_s` is monotonic. `missing` are the attempts that Hello should have named."""
        self.ref = ref
        self.credit_count = credit_count
        self.window_size = window_size
        self.missing = missing
        self.last_heard_s = now_s
        self.last_heartbeat_number = 0
        self._pending: Heartbeat | None = None
        self._ready = ready
        self._not_ready_reason = not_ready_reason
        self._last_heard: Heartbeat | None = None
        self._written = self._shown(silent=False)
        self._written_at_s = now_s
        self._unacked: deque[int] = deque()
        self._outgoing: deque[Outgoing] = deque()
        self._has_outgoing = asyncio.Event()
        self._ended = asyncio.Event()
        self._error: TdpError | None = None

    # --- The stream. ---

    def offer(self, message: Outgoing) -> None:
        """Queue a message for the writer; a node that reads too slowly loses its session."""
        if self._ended.is_set():
            return
        if len(self._outgoing) >= OUTGOING_COUNT_MAX:
            self.end(
                NodeNotReadingError(
                    f"node {self.ref.node_id} left {OUTGOING_COUNT_MAX} messages unread: "
                    "the session was ended; read the stream, and reconnect"
                )
            )
            return
        self._outgoing.append(message)
        self._has_outgoing.set()

    async def next_outgoing(self) -> Outgoing:
        """Wait for the next message to write."""
        while not self._outgoing:
            self._has_outgoing.clear()
            await self._has_outgoing.wait()
        return self._outgoing.popleft()

    @property
    def outgoing_count(self) -> int:
        """Messages that wait to be written."""
        return len(self._outgoing)

    def end(self, error: TdpError | None = None) -> None:
        """End the session, with the error that its stream is to answer; the first one counts."""
        if not self._ended.is_set():
            self._error = error
            self._outgoing.clear()
            self._ended.set()

    @property
    def is_ended(self) -> bool:
        """Whether nothing is to be written any more."""
        return self._ended.is_set()

    async def wait_ended(self) -> TdpError | None:
        """Wait until the session ends, and return why; None where the node just left."""
        await self._ended.wait()
        return self._error

    # --- Commands. ---

    @property
    def is_blocked(self) -> bool:
        """Whether credits or window keep commands back, so that an ack or credit is news."""
        return self.credit_count <= 0 or len(self._unacked) >= self.window_size

    @property
    def can_take(self) -> bool:
        """Whether taking commands makes sense: there is room to write them."""
        return not self._ended.is_set() and len(self._outgoing) < OUTGOING_COUNT_MAX // 2

    def commands_taken(self, commands: Sequence[SentCommand]) -> None:
        """Note commands that were marked as SENT for this session."""
        known = set(self._unacked)
        for command in commands:
            if command.kind is CommandKind.RUN and command.is_first:
                self.credit_count -= 1
            if command.sequence not in known:
                self._unacked.append(command.sequence)

    def commands_acked(self, sequence: int) -> None:
        """Note that the node has stored every command up to a sequence."""
        self._unacked = deque(one for one in self._unacked if one > sequence)

    # --- Heartbeats. ---

    def heard(self, heartbeat: Heartbeat, now_s: float) -> None:
        """Note a heartbeat; one that lists leases waits for the next tick."""
        self.last_heard_s = now_s
        self.last_heartbeat_number = max(self.last_heartbeat_number, heartbeat.number)
        self._ready = heartbeat.ready
        self._not_ready_reason = heartbeat.not_ready_reason
        self._last_heard = heartbeat
        if heartbeat.leases:
            self._pending = heartbeat

    def take_pending(self) -> Heartbeat | None:
        """Take the newest heartbeat that lists leases and is not answered yet."""
        pending, self._pending = self._pending, None
        return pending

    def put_back(self, heartbeat: Heartbeat) -> None:
        """Take a heartbeat up again whose tick failed, unless a newer one has come."""
        if self._pending is None:
            self._pending = heartbeat

    # --- The node's row. ---

    def state_to_write(
        self, *, silent: bool, now_s: float, stale_after_s: float
    ) -> NodeState | None:
        """Return what the node's row should say, if it does not say so or is getting old."""
        shown = self._shown(silent=silent)
        stale = not silent and now_s - self._written_at_s >= stale_after_s
        if shown == self._written and not stale:
            return None
        heard = self._last_heard
        if heard is None:
            return NodeState(self.ref, *shown)
        return NodeState(
            self.ref,
            *shown,
            heard.disk_bytes,
            heard.cpu_used_millis,
            heard.memory_available_bytes,
        )

    def state_written(self, state: NodeState, now_s: float) -> bool:
        """Note a written state; True if the node can take work again from now on."""
        was_ready = self._written[0] is Runtime.READY
        self._written = (state.runtime, state.not_ready_reason)
        self._written_at_s = now_s
        return state.runtime is Runtime.READY and not was_ready

    def _shown(self, *, silent: bool) -> tuple[Runtime, str]:
        if silent:
            return Runtime.SILENT, ""
        if self._ready:
            return Runtime.READY, ""
        return Runtime.NOT_READY, self._not_ready_reason


class LiveSessions:
    """The sessions of one replica by node, and those that ended and are still to be noted."""

    def __init__(self, hints: LocalHints) -> None:
        """Start empty; `hints.nodes` names nodes with new commands."""
        self._hints = hints
        self._sessions: dict[str, Session] = {}
        self._closed: dict[str, SessionRef] = {}

    def __iter__(self) -> Iterator[Session]:
        """The live sessions, as they are now."""
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        """How many sessions live here."""
        return len(self._sessions)

    def get(self, node_id: str) -> Session | None:
        """Return the node's live session on this replica."""
        return self._sessions.get(node_id)

    def add(self, session: Session) -> None:
        """Make a session the node's live one; of two, the newer generation stays."""
        node_id = session.ref.node_id
        current = self._sessions.get(node_id)
        if current is not None and current.ref.generation > session.ref.generation:
            session.end(replaced(session))
            return
        self._sessions[node_id] = session
        if current is not None:
            current.end(replaced(current))
        self._hints.nodes.add([node_id])

    def remove(self, session: Session) -> None:
        """Forget a session that is over; its node's row is written by the next tick."""
        session.end()
        node_id = session.ref.node_id
        if self._sessions.get(node_id) is session:
            del self._sessions[node_id]
        # Also one whose Welcome never left; the row of a newer session is not touched.
        self._note_closed(session.ref)

    def wake(self, node_ids: Iterable[str]) -> None:
        """Look for commands of those nodes that are in session here; others are ignored.

        For hints from other replicas, which must not be forwarded again.
        """
        self._hints.nodes.add(one for one in node_ids if one in self._sessions)

    def take_closed(self) -> list[SessionRef]:
        """Take the sessions that ended since the last call."""
        closed, self._closed = list(self._closed.values()), {}
        return closed

    def put_back_closed(self, refs: Iterable[SessionRef]) -> None:
        """Keep sessions whose end could not be noted."""
        for ref in refs:
            self._note_closed(ref)

    def _note_closed(self, ref: SessionRef) -> None:
        known = self._closed.get(ref.node_id)
        if known is None or known.generation < ref.generation:
            self._closed[ref.node_id] = ref

    def heartbeat_lists(self) -> list[tuple[Session, Heartbeat]]:
        """Take the heartbeats that wait for a tick."""
        return [
            (session, heartbeat)
            for session in self
            if (heartbeat := session.take_pending()) is not None
        ]


def heartbeat_list(session: Session, heartbeat: Heartbeat) -> HeartbeatList:
    """Return what a tick needs of a heartbeat, each lease once."""
    return HeartbeatList(session.ref, list(dict.fromkeys(heartbeat.leases)))


def replaced(session: Session) -> SessionReplacedError:
    """Make the error with which a session ends that a newer one has replaced."""
    return SessionReplacedError(
        f"session {session.ref.generation} of node {session.ref.node_id} was replaced by a newer "
        "one: if that was not you, another process has this node's credential"
    )
