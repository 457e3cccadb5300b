"""Hints between replicas over NATS core subjects: sent once, kept nowhere, never waited for."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from control_plane.adapters.nats_stream import SUBJECTS, ExecutionNote
from control_plane.adapters.outbound.nats_connection import NatsConnection
from control_plane.core.wakeups import LocalHints

NODES: Final = "tdp.node.wake"
CAPACITY: Final = "tdp.scheduler.wake"
# Freed capacity comes in bursts, and one message says as much as a hundred.
_CAPACITY_SPACING_S: Final = 0.05

_log = structlog.stdlib.get_logger(__name__)


class NatsWakeups:
    """A Service that also implements RemoteNodeWakeups.

    It tells the other replicas of nodes with new commands and of freed capacity, and hears
    the same from them; of events it hears from the wake-up stream's own subjects, so that
    watchers need no message of their own.
    """

    name: Final = "nats-wakeups"

    def __init__(
        self,
        connection: NatsConnection,
        hints: LocalHints,
        wake_nodes_here: Callable[[Iterable[str]], None],
        *,
        replica_id: str,
    ) -> None:
        """`wake_nodes_here` looks for commands of those nodes that are in session here."""
        self._connection = connection
        self._hints = hints
        self._wake_nodes_here = wake_nodes_here
        self._replica_id = replica_id
        self._subscribed = False
        self._stopping = asyncio.Event()
        self._finished = asyncio.Event()
        self._running = False
        connection.on_connected(self._subscribe)

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def run(self) -> None:
        """Tell the others whenever capacity was freed here."""
        self._running = True
        try:
            while not self._stopping.is_set():
                await self._hints.capacity.wait()
                if not self._stopping.is_set():
                    await self._send(CAPACITY, ())
                    await self._rest()
        finally:
            self._finished.set()

    async def stop(self) -> None:
        """Return when the service has ended."""
        self._stopping.set()
        self._hints.capacity.set()
        if self._running:
            await self._finished.wait()

    async def wake(self, node_ids: Sequence[str]) -> None:
        """Forward the hint to wherever the nodes are in session; losing it costs time only."""
        await self._send(NODES, node_ids)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(_CAPACITY_SPACING_S):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _send(self, subject: str, ids: Sequence[str]) -> None:
        if not self._connection.is_connected:
            return
        text = json.dumps({"from": self._replica_id, "ids": list(ids)}, separators=(",", ":"))
        try:
            await self._connection.client.publish(subject, text.encode())
        except (NatsError, OSError) as error:
            _log.debug("nats_hint_lost", subject=subject, error=repr(error))

    async def _subscribe(self) -> None:
        """Subscribe once: the client itself renews it with each later connection."""
        if self._subscribed:
            return
        self._subscribed = True
        client = self._connection.client
        await client.subscribe(NODES, cb=self._nodes_named)
        await client.subscribe(CAPACITY, cb=self._capacity_freed)
        await client.subscribe(SUBJECTS, cb=self._event_stored)

    async def _nodes_named(self, message: Msg) -> None:
        self._wake_nodes_here(self._ids_of(message) or ())

    async def _capacity_freed(self, message: Msg) -> None:
        # Not `capacity`, which would send it round again.
        if self._ids_of(message) is not None:
            self._hints.scheduler.set()

    async def _event_stored(self, message: Msg) -> None:
        try:
            self._hints.watchers.add([ExecutionNote.from_json(message.data).execution_id])
        except ValueError:
            _log.warning("nats_message_odd", subject=message.subject)

    def _ids_of(self, message: Msg) -> list[str] | None:
        """Return the ids of another replica's hint; None for our own and for odd ones."""
        try:
            document = json.loads(message.data)
            ids = [str(one) for one in document["ids"]]
            return None if document["from"] == self._replica_id else ids
        except (ValueError, KeyError, TypeError):
            _log.warning("nats_message_odd", subject=message.subject)
            return None
