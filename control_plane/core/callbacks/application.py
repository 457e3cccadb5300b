"""Delivers callbacks: the publisher behind the pump over callback_deliveries."""

import asyncio
import json
from collections.abc import Sequence

from control_plane.core.callbacks.domain import no_target
from control_plane.core.callbacks.ports import CallbackDirectory, CallbackTransport
from control_plane.limits import DISABLED_RECHECK_S
from foundation.outbox.model import Held, OutboxRow, Outcome


class CallbackPublisher:
    """Implements Publisher: each row to its task's endpoint, by the URL's scheme.

    The pump hands over rows of one execution in order; rows of different executions go out
    side by side, so that one slow endpoint holds up nobody else.
    """

    def __init__(
        self, directory: CallbackDirectory, http: CallbackTransport, grpc: CallbackTransport
    ) -> None:
        self._directory = directory
        self._http = http
        self._grpc = grpc

    async def publish(self, rows: Sequence[OutboxRow]) -> Sequence[Outcome]:
        """Deliver the rows and return one outcome for each, in order."""
        return await asyncio.gather(*(self._deliver(row) for row in rows))

    async def _deliver(self, row: OutboxRow) -> Outcome:
        target = await self._directory.target(str(row.extra["execution_id"]))
        if target is None:
            return no_target()
        if target.disabled:
            return Held(
                "the endpoint answered 410 before: set it again to enable it",
                recheck_after_s=DISABLED_RECHECK_S,
            )
        transport = self._http if target.url.startswith("http") else self._grpc
        event_id = json.loads(row.payload)["id"]
        outcome = await transport.deliver(target, event_id, row.payload.encode())
        if isinstance(outcome, Held):
            await self._directory.disable(target.application_id)
        return outcome
