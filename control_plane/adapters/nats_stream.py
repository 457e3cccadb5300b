"""The wake-up stream of executions: what it is called, what it keeps, who reads it."""

import json
from dataclasses import dataclass
from typing import Final

from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)

STREAM: Final = "TDP_EXECUTIONS"
SUBJECTS: Final = "tdp.execution.>"
CONSUMER: Final = "tdp-engine"
# One subject and one queue group for all replicas, whatever becomes of the consumer.
DELIVERIES: Final = "tdp.engine.deliveries"
MESSAGE_ID_HEADER: Final = "Nats-Msg-Id"

_MESSAGE_AGE_S_MAX: Final = 3_600.0
_DUPLICATE_WINDOW_S: Final = 120.0
_ACK_WAIT_S: Final = 30.0
_DELIVERIES_MAX: Final = 20
_UNACKED_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class ExecutionNote:
    """That an event of an execution was stored."""

    execution_id: str
    sequence: int
    type: str

    @property
    def subject(self) -> str:
        """Where it is published: `tdp.execution.succeeded`."""
        return f"tdp.{self.type}"

    @classmethod
    def from_json(cls, payload: str | bytes) -> "ExecutionNote":
        """Read an outbox row's payload; ValueError for anything else."""
        document = json.loads(payload)
        try:
            note = cls(
                str(document["execution_id"]), int(document["sequence"]), str(document["type"])
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{payload[:200]!r} is no note about an execution") from error
        if not note.type.startswith("execution."):
            raise ValueError(f"{note.type!r} is no event of an execution")
        return note


def stream_config(bytes_max: int) -> StreamConfig:
    """Return the stream: old wake-ups make room for new ones, and are worth nothing in an hour."""
    return StreamConfig(
        name=STREAM,
        subjects=[SUBJECTS],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        max_age=_MESSAGE_AGE_S_MAX,
        max_bytes=bytes_max,
        storage=StorageType.FILE,
        duplicate_window=_DUPLICATE_WINDOW_S,
    )


def consumer_config() -> ConsumerConfig:
    """Return the engine's consumer: durable, pushed to one replica of the group, acked."""
    return ConsumerConfig(
        durable_name=CONSUMER,
        deliver_subject=DELIVERIES,
        deliver_group=CONSUMER,
        # A consumer that has to be made anew leaves the past to the sweep.
        deliver_policy=DeliverPolicy.NEW,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=_ACK_WAIT_S,
        max_deliver=_DELIVERIES_MAX,
        max_ack_pending=_UNACKED_MAX,
        filter_subject=SUBJECTS,
    )
