"""Rows of orders and of their changes as domain objects; for every store that reads them."""

from business_gateway.core.assets.domain import AssetId
from business_gateway.core.orders.domain import Order, OrderChange, OrderId, ProcessingMode
from business_gateway.core.orders.state_machine import OrderStatus
from foundation.postgres.pool import Record


def order_of(row: Record) -> Order:
    """Return the order of a whole row."""
    return Order(
        order_id=OrderId(str(row["order_id"])),
        name=row["name"],
        processing_mode=ProcessingMode(row["processing_mode"]),
        watermark_text=row["watermark_text"],
        source_asset_id=AssetId(str(row["source_asset_id"])),
        status=OrderStatus(row["status"]),
        task_id=_text(row["task_id"]),
        execution_id=_text(row["execution_id"]),
        run=row["run"],
        last_contiguous_sequence=row["last_contiguous_sequence"],
        last_projected_sequence=row["last_projected_sequence"],
        platform_status=row["platform_status"],
        progress_percent=row["progress_percent"],
        diagnosis=row["diagnosis"],
        diagnosis_json=row["diagnosis_json"],
        output_json=row["output_json"],
        version=row["version"],
        cancel_requested_at=row["cancel_requested_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        completed_at=row["completed_at"],
    )


def change_of(row: Record) -> OrderChange:
    """Return the change of a whole row."""
    return OrderChange(
        order_id=OrderId(str(row["order_id"])),
        version=row["version"],
        kind=row["kind"],
        status=OrderStatus(row["status"]),
        platform_status=row["platform_status"],
        run=row["run"],
        progress_percent=row["progress_percent"],
        diagnosis=row["diagnosis"],
        occurred_at=row["occurred_at"],
    )


def _text(identity: object) -> str | None:
    return None if identity is None else str(identity)
