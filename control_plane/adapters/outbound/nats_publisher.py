"""Publishes execution events to JetStream: the whole batch at once, each with its own PubAck."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from nats.errors import Error as NatsError
from nats.js.api import PubAck
from nats.js.client import JetStreamContext

from control_plane.adapters.nats_stream import MESSAGE_ID_HEADER, ExecutionNote
from control_plane.adapters.outbound.nats_connection import NatsConnection
from foundation.outbox.model import Dead, Delivered, DestinationUnreachable, OutboxRow, Outcome

ACK_TIMEOUT_S: Final = 3.0


class JetStreamPublisher:
    """Implements foundation.outbox's Publisher.

    Whatever goes wrong, it is NATS that is away, full or wiped, and never the row's fault: so
    no attempt is counted. `recheck` is called when the stream seems to be missing.
    """

    def __init__(
        self,
        connection: NatsConnection,
        recheck: Callable[[], None],
        ack_timeout_s: float = ACK_TIMEOUT_S,
    ) -> None:
        self._connection = connection
        self._recheck = recheck
        self._ack_timeout_s = ack_timeout_s
        self._jetstream: JetStreamContext | None = None

    async def publish(self, rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        """Publish the rows; takes no longer than the time-out of one."""
        if not self._connection.is_connected:
            return [DestinationUnreachable("NATS is not connected")] * len(rows)
        pending: dict[int, asyncio.Future[PubAck]] = {}
        outcomes: dict[int, Outcome] = {}
        try:
            async with asyncio.timeout(self._ack_timeout_s):
                for place, row in enumerate(rows):
                    sent = await self._send(row)
                    if isinstance(sent, Dead):
                        outcomes[place] = sent
                    else:
                        pending[place] = sent
                if pending:
                    await asyncio.wait(pending.values())
        except TimeoutError:
            pass
        except (NatsError, OSError) as error:
            refused: Outcome = DestinationUnreachable(f"NATS refuses messages: {error!r}")
            outcomes |= {place: refused for place in range(len(rows)) if place not in pending}
        finally:
            outcomes |= {place: _outcome(future) for place, future in pending.items()}
        if any(isinstance(one, DestinationUnreachable) for one in outcomes.values()):
            self._recheck()
        unsent = DestinationUnreachable("NATS took no more messages in time")
        return [outcomes.get(place, unsent) for place in range(len(rows))]

    async def _send(self, row: OutboxRow) -> "asyncio.Future[PubAck] | Dead":
        try:
            subject = ExecutionNote.from_json(row.payload).subject
        except ValueError as error:
            return Dead(str(error))
        if self._jetstream is None:
            self._jetstream = self._connection.client.jetstream()
        return await self._jetstream.publish_async(
            subject, row.payload.encode(), headers={MESSAGE_ID_HEADER: str(row.outbox_id)}
        )


def _outcome(future: "asyncio.Future[PubAck]") -> Outcome:
    if not future.done():
        future.cancel()
        return DestinationUnreachable("no PubAck in time: it is published again under its id")
    if future.cancelled():
        return DestinationUnreachable("the PubAck was cancelled")
    error = future.exception()
    if error is not None:
        return DestinationUnreachable(f"JetStream did not store it: {error!r}")
    return Delivered()
