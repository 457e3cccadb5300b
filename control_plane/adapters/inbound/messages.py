"""Small translations that every gRPC service needs: times, outcomes."""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from tdp.control.v1 import mutation_pb2


def timestamp(moment: datetime | None) -> Timestamp | None:
    """Return the message for a moment; None stays unset."""
    if moment is None:
        return None
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def moment(message: Timestamp) -> datetime:
    """Return the moment that a message stands for."""
    return message.ToDatetime(tzinfo=UTC)


def outcome(*, created: bool) -> mutation_pb2.MutationOutcome.ValueType:
    """Return CREATED or REPLAYED."""
    if created:
        return mutation_pb2.MUTATION_OUTCOME_CREATED
    return mutation_pb2.MUTATION_OUTCOME_REPLAYED
