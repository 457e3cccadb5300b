"""Orders as clients read them: one JSON document, the same in answers, replays and streams."""

import json
from datetime import UTC, datetime

from business_gateway.core.orders.domain import Order, OrderChange


def order_document(order: Order) -> dict[str, object]:
    """Return the order's document; JSON inside stays text, so that numbers stay exact."""
    return {
        "order_id": order.order_id,
        "name": order.name,
        "processing_mode": order.processing_mode.value,
        "watermark_text": order.watermark_text,
        "source_asset_id": order.source_asset_id,
        "status": order.status.value,
        "progress_percent": order.progress_percent,
        "run": order.run,
        "task_id": order.task_id,
        "execution_id": order.execution_id,
        "platform_status": order.platform_status,
        "diagnosis": order.diagnosis,
        "diagnosis_json": order.diagnosis_json,
        "output_json": order.output_json,
        "version": order.version,
        "cancel_requested_at": time_text(order.cancel_requested_at),
        "created_at": time_text(order.created_at),
        "updated_at": time_text(order.updated_at),
        "completed_at": time_text(order.completed_at),
    }


def change_document(change: OrderChange) -> dict[str, object]:
    """Return one version's document, as live streams carry it."""
    return {
        "order_id": change.order_id,
        "version": change.version,
        "kind": change.kind,
        "status": change.status.value,
        "platform_status": change.platform_status,
        "run": change.run,
        "progress_percent": change.progress_percent,
        "diagnosis": change.diagnosis,
        "occurred_at": time_text(change.occurred_at),
    }


def document_text(document: object) -> str:
    """Return the JSON text that is stored and sent."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def time_text(moment: datetime | None) -> str | None:
    """Return a moment as RFC 3339 in UTC with microseconds."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
