"""What a replica stores of the reports of nodes: acks and results."""

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.leases.database import ATTEMPTS_TABLE, Key, Transaction
from tests.simulation.leases.messages import (
    Ack,
    AttemptRow,
    NodeTableRow,
    Result,
    ResultAck,
    StepRow,
)
from tests.simulation.leases.mutants import Mutant
from tests.simulation.leases.network import Stream
from tests.simulation.leases.sessions import Session

if TYPE_CHECKING:
    from tests.simulation.leases.replica import Replica


def store_ack(replica: "Replica", session: Session | None, ack: Ack) -> None:
    """Note up to where a node has stored its commands."""
    if session is None or ack.generation != session.generation:
        return

    def body(transaction: Transaction) -> bool:
        node: NodeTableRow = transaction.get("nodes", session.node_id)
        if node.generation == session.generation:
            acked = max(node.acked_sequence, ack.watermark)
            transaction.put("nodes", session.node_id, replace(node, acked_sequence=acked))
        return True

    replica.world.database.submit(replica, [("nodes", session.node_id)], body, lambda _: None)


def store_result(replica: "Replica", stream: Stream, result: Result) -> None:
    """Accept the result of a live attempt, and ack any."""

    def body(transaction: Transaction) -> bool:
        row: AttemptRow = transaction.get("attempts", result.attempt_id)
        matches = (
            not row.is_terminal
            and row.lease_version == result.lease_version
            and row.node_id == stream.node.node_id
        )
        if replica.world.mutant is Mutant.LATE_RESULTS_ARE_ACCEPTED:
            matches = row.status != "SUCCEEDED"
        if matches:
            done = replace(row, status="SUCCEEDED")
            transaction.put("attempts", row.attempt_id, done)
            step: StepRow = transaction.get("steps", row.step_id)
            succeeded = replace(step, status="DONE", succeeded_attempt=row.attempt_id)
            transaction.put("steps", row.step_id, succeeded)
        return True

    def acked(stored: bool | None) -> None:  # noqa: FBT001 - the reply of a transaction
        if stored:
            stream.send_down(ResultAck(result.attempt_id))

    keys: list[Key] = [ATTEMPTS_TABLE, ("attempts", result.attempt_id)]
    replica.world.database.submit(replica, keys, body, acked)
