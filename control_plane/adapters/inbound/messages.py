"""What the answer of every mutating RPC says of its effect."""

from tdp.control.v1 import mutation_pb2


def outcome(*, created: bool) -> mutation_pb2.MutationOutcome.ValueType:
    """Return CREATED or REPLAYED."""
    if created:
        return mutation_pb2.MUTATION_OUTCOME_CREATED
    return mutation_pb2.MUTATION_OUTCOME_REPLAYED
