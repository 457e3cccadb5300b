"""Delivers callbacks: the publisher behind the pump over callback_deliveries."""

import asyncio
import json
from collections.abc import Sequence

from control_plane.core.callbacks.domain import CallbackTarget, no_room, no_target
from control_plane.core.callbacks.isolation import EndpointLoads
from control_plane.core.callbacks.ports import (
    CallbackDirectory,
    CallbackTransport,
    HeldDeliveries,
)
from control_plane.limits import DISABLED_RECHECK_S
from foundation.outbox.model import Delivered, Held, OutboxRow, Outcome


class CallbackPublisher:
    """Implements Publisher: each row to its task's endpoint, by the URL's scheme.

    The pump hands over rows of one execution in order; rows of different executions go out
    side by side. What an endpoint that does not answer may hold of the relay is bounded: rows
    beyond that are held, uncounted, until it takes something or their time comes.
    """

    def __init__(
        self,
        directory: CallbackDirectory,
        http: CallbackTransport,
        grpc: CallbackTransport,
        held: HeldDeliveries,
        loads: EndpointLoads,
    ) -> None:
        self._directory = directory
        self._http = http
        self._grpc = grpc
        self._held = held
        self._loads = loads

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
        endpoint = (target.application_id, target.url)
        if not await self._loads.begin(endpoint):
            return no_room(failing=self._loads.is_failing(endpoint))
        delivered = False
        try:
            outcome = await self._send(target, row)
            delivered = isinstance(outcome, Delivered)
        finally:
            may_come_again = self._loads.ended(endpoint, delivered=delivered)
        if may_come_again:
            await self._held.release(target.application_id)
        return outcome

    async def _send(self, target: CallbackTarget, row: OutboxRow) -> Outcome:
        transport = self._http if target.url.startswith("http") else self._grpc
        event_id = json.loads(row.payload)["id"]
        outcome = await transport.deliver(target, event_id, row.payload.encode())
        if isinstance(outcome, Held):
            await self._directory.disable(target.application_id)
        return outcome
