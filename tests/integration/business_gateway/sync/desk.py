"""Orders made straight in the gateway's database, and what it then holds of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from business_gateway.core.callbacks.domain import EventSource, PlatformEvent
from business_gateway.core.callbacks.ports import Arrival
from foundation.ids import SequentialIds
from foundation.postgres.pool import Database

_INSERT_ASSET = """
insert into assets (asset_id, name, state, object_key, size_bytes, decided_at)
values ($1::uuid, 'a.zip', 'READY', $1::uuid::text, 1, tdp_now())
"""
_INSERT_ORDER = """
insert into orders (order_id, name, processing_mode, source_asset_id)
values ($1, 'Photos', 'ARCHIVE_CLEAN_ONLY', $2)
"""
_INSERT_COMMAND = """
insert into command_outbox (outbox_id, ordering_key, destination, payload, kind, order_id)
values ($1, $2::text, 'control-plane', $3, $4, $2::text::uuid)
"""
_SET_ORDER = """
update orders
set status = $2::text,
    platform_status = coalesce($3::text, platform_status),
    completed_at = case
        when $2::text in ('COMPLETED', 'NEEDS_ATTENTION', 'CANCELED') then tdp_now()
    end
where order_id = $1
"""
_ORDERS = """
select order_id::text, status, task_id::text, execution_id::text, run, last_contiguous_sequence,
    last_projected_sequence, status_sequence, platform_status, progress_percent, diagnosis,
    diagnosis_json, output_json, version, change_kind, change_event_id::text,
    completed_at is not null as completed, cancel_requested_at is not null as cancel_requested
from orders order by order_id
"""
_CHANGES = """
select order_id::text, version, kind, event_id::text, status, platform_status, run,
    progress_percent, diagnosis
from order_changes order by order_id, version
"""
_INBOX = """
select event_id::text, order_id::text, task_id::text, execution_id::text, run, sequence, type,
    platform_status, progress_percent, envelope, source, effect, order_version, arrivals
from callback_inbox order by event_id
"""


@dataclass(slots=True)
class Desk:
    """One gateway's database, written to as its other half would."""

    database: Database
    ids: SequentialIds = field(default_factory=SequentialIds)

    async def new_order(self, order_id: str | None = None) -> str:
        order_id = order_id or self.ids.new_id()
        asset_id = self.ids.new_id()
        async with self.database.transaction() as connection:
            await connection.execute(_INSERT_ASSET, asset_id)
            await connection.execute(_INSERT_ORDER, order_id, asset_id)
        return order_id

    async def add_command(self, order_id: str, kind: str, **payload: object) -> str:
        command_id = self.ids.new_id()
        text = json.dumps({"order_id": order_id, **payload})
        await self.database.fetch(_INSERT_COMMAND, command_id, order_id, text, kind)
        return command_id

    async def submit(self, order_id: str) -> str:
        return await self.add_command(
            order_id,
            "SUBMIT",
            name="Photos",
            workflow_name="archive-clean",
            workflow_version="1",
            input={"archive_ref": "asset:1", "collection_ref": f"collection:{order_id}"},
        )

    async def set_order(
        self, order_id: str, status: str, platform_status: str | None = None
    ) -> None:
        """Change an order as the gateway's other half would."""
        await self.database.fetch(_SET_ORDER, order_id, status, platform_status)

    async def order(self, order_id: str) -> dict[str, Any]:
        rows = await self.database.fetch("select * from orders where order_id = $1", order_id)
        return dict(rows[0])

    async def command(self, command_id: str) -> dict[str, Any]:
        rows = await self.database.fetch(
            "select * from command_outbox where outbox_id = $1", command_id
        )
        return dict(rows[0])

    async def everything(self) -> tuple[list[dict[str, Any]], ...]:
        """All orders, versions and events, without times."""
        found = [await self.database.fetch(one) for one in (_ORDERS, _CHANGES, _INBOX)]
        return tuple([dict(row) for row in rows] for rows in found)

    async def clear(self) -> None:
        await self.database.fetch("truncate orders, order_changes, callback_inbox, command_outbox")


def arrivals(
    events: Sequence[PlatformEvent], source: EventSource = EventSource.CALLBACK
) -> list[Arrival]:
    return [Arrival(one, source) for one in events]
