"""The CloudEvents envelope of an execution event: the very text that is stored and delivered."""

import json
from datetime import UTC, datetime
from typing import Final

from control_plane.core.executions.domain import ExecutionEvent, ExecutionEventType

SOURCE: Final = "tdp://control-plane"


def envelope(
    event: ExecutionEvent, event_type: ExecutionEventType, event_id: str, time: datetime
) -> str:
    """Return CloudEvents 1.0 JSON text; the documents inside stay as they were stored.

    `time` is when the event happened, aware of its zone; it is written in UTC.
    """
    head = json.dumps(
        {
            "specversion": "1.0",
            "id": event_id,
            "source": SOURCE,
            "type": event_type.value,
            "subject": event.execution_id,
            "time": time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "datacontenttype": "application/json",
        },
        separators=(",", ":"),
    )
    return f'{head[:-1]},"data":{event.data_json()}}}'
