"""The single sender's last mile: events into the session; Delivered only on the server's ack."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from foundation.outbox.model import Delivered, DestinationUnreachable, OutboxRow, Outcome, Retry
from node_agent.core.journal.events import NodeEvent, fact_from_json
from node_agent.core.session.lease_clock import AttemptId
from node_agent.core.session.mailbox import Mailbox
from node_agent.core.session.messages import EventResult

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EventSenderConfig:
    """Times in seconds.

    `session_patience_s`: how long a publish waits for a session and an ack in all;
    `ack_timeout_s`: how long for an ack in one session; `rest_patience_s`: how long for the
    rest once a part is acknowledged (what the server could not store it leaves out).
    """

    incarnation_id: str
    session_patience_s: float = 30.0
    ack_timeout_s: float = 10.0
    rest_patience_s: float = 1.0


@dataclass(slots=True, eq=False)
class _Publish:
    """Rows that wait for their acks; `is_final` by event id."""

    events: dict[str, NodeEvent]
    finals: dict[str, AttemptId]
    refused: dict[str, str] = field(default_factory=dict)
    progress: asyncio.Event = field(default_factory=asyncio.Event)
    acked_any: bool = False


class EventSender:
    """Publisher of the agent's outbox; the session tells it of acks and of its own life."""

    def __init__(
        self,
        config: EventSenderConfig,
        mailbox: Mailbox,
        on_final_acked: Callable[[AttemptId], None],
        event_count: int = 0,
    ) -> None:
        """`event_count` events wait in the journal already."""
        self._config = config
        self._mailbox = mailbox
        self._on_final_acked = on_final_acked
        self._publishes: dict[str, _Publish] = {}
        self._session_number = 0
        self._is_open = False
        self._stopped = False
        self._changed = asyncio.Event()
        self._emptied = asyncio.Event()
        self._depth = event_count
        self._note_depth()

    # --- How much waits. ---

    @property
    def depth(self) -> int:
        """Events in the outbox that are not acknowledged."""
        return self._depth

    @property
    def is_in_session(self) -> bool:
        """Whether a session is open."""
        return self._is_open

    def added(self, event_count: int) -> None:
        """Note events that were stored."""
        self._depth += event_count
        self._note_depth()

    async def wait_empty(self) -> None:
        """Return once every event is acknowledged."""
        await self._emptied.wait()

    def _note_depth(self) -> None:
        if self._depth > 0:
            self._emptied.clear()
        else:
            self._emptied.set()

    # --- The session's side. ---

    def session_opened(self) -> None:
        """Send what waits: a session is there."""
        self._session_number += 1
        self._is_open = True
        self._announce()

    def stop(self) -> None:
        """Wait for nothing any more: what is not acknowledged stays in the outbox."""
        self._stopped = True
        self._announce()

    def session_closed(self) -> None:
        """What was sent and not acknowledged is sent again in the next session."""
        self._is_open = False
        self._announce()

    def acked(self, results: Sequence[EventResult]) -> None:
        """Take the server's word that events are stored, whether they had an effect or not."""
        for result in results:
            publish = self._publishes.pop(result.event_id, None)
            if publish is None:
                continue
            publish.events.pop(result.event_id, None)
            publish.acked_any = True
            publish.progress.set()
            self._depth -= 1
            if not result.is_accepted:
                _log.info("event_without_effect", event_id=result.event_id, reason=result.reason)
            if result.event_id in publish.finals:
                self._on_final_acked(publish.finals[result.event_id])
        self._note_depth()

    def too_large(self, events: Sequence[NodeEvent], error: str) -> None:
        """Take events back that are over the server's limit: they were not written."""
        for event in events:
            publish = self._publishes.get(event.event_id)
            if publish is not None:
                publish.refused[event.event_id] = error
                publish.progress.set()

    # --- The pump's side. ---

    async def publish(self, rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        """See Publisher: send until acknowledged, over sessions, for a bounded time."""
        publish = self._registered(rows)
        try:
            async with asyncio.timeout(self._config.session_patience_s):
                await self._deliver(publish)
        except TimeoutError:
            pass
        finally:
            for event_id in publish.events:
                self._publishes.pop(event_id, None)
        return [self._outcome(publish, str(row.outbox_id)) for row in rows]

    def _registered(self, rows: Sequence[OutboxRow]) -> _Publish:
        events = {str(row.outbox_id): self._event(row) for row in rows}
        finals = {
            str(row.outbox_id): events[str(row.outbox_id)].attempt_id
            for row in rows
            if row.extra["is_final"]
        }
        publish = _Publish(events, finals)
        for event_id in events:
            self._publishes[event_id] = publish
        return publish

    def _event(self, row: OutboxRow) -> NodeEvent:
        extra = row.extra
        return NodeEvent(
            event_id=str(row.outbox_id),
            attempt_id=AttemptId(str(extra["attempt_id"])),
            lease_version=int(str(extra["lease_version"])),
            boot_id=str(extra["boot_id"]),
            incarnation_id=self._config.incarnation_id,
            occurred_at=str(extra["occurred_at"]),
            fact=fact_from_json(row.payload),
        )

    async def _deliver(self, publish: _Publish) -> None:
        while publish.events:
            await self._session_there()
            if self._stopped:
                return
            number = self._session_number
            self._mailbox.send_events(tuple(publish.events.values()))
            if await self._settled(publish, number):
                return

    async def _session_there(self) -> None:
        while not self._is_open and not self._stopped:
            self._changed.clear()
            await self._changed.wait()

    async def _settled(self, publish: _Publish, number: int) -> bool:
        """Wait for acks; False where the session ended first, so that the rest is to be resent."""
        limit_s = self._config.ack_timeout_s
        while len(publish.events) > len(publish.refused):
            publish.progress.clear()
            try:
                async with asyncio.timeout(limit_s):
                    await publish.progress.wait()
            except TimeoutError:
                return True
            if self._stopped or not self._is_open or self._session_number != number:
                return self._stopped
            if publish.acked_any:
                limit_s = self._config.rest_patience_s
        return True

    def _announce(self) -> None:
        self._changed.set()
        for publish in set(self._publishes.values()):
            publish.progress.set()

    def _outcome(self, publish: _Publish, event_id: str) -> Outcome:
        if event_id not in publish.events:
            return Delivered()
        if event_id in publish.refused:
            return Retry(publish.refused[event_id])
        if not self._is_open:
            return DestinationUnreachable("no session with the control plane")
        return Retry("the control plane did not acknowledge the event")
