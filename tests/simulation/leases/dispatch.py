"""The scheduler of a replica: attempts for ready steps, and RUNs on their way to nodes."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from control_plane.core.executions.domain import AttemptId
from control_plane.core.nodes import leases
from control_plane.core.nodes.leases import LeaseVersion
from tests.simulation.leases.database import ATTEMPTS_TABLE, Key, Transaction
from tests.simulation.leases.messages import AttemptRow, NodeTableRow, Run, StepRow
from tests.simulation.leases.mutants import Mutant
from tests.simulation.leases.sessions import Session

if TYPE_CHECKING:
    from tests.simulation.leases.replica import Replica


SLOTS_PER_NODE = 2


class Dispatch:
    """Gives ready steps to live nodes, and sends what is not acked."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica

    def run(self) -> None:
        for step_id in self._replica.world.ready_steps()[:3]:
            keys: list[Key] = [ATTEMPTS_TABLE, ("steps", step_id), ("dispatch", "")]
            self._replica.world.database.submit(
                self._replica, keys, partial(self._give, step_id), self._wake
            )

    def _give(self, step_id: str, transaction: Transaction) -> str | None:
        world = self._replica.world
        step: StepRow = transaction.get("steps", step_id)
        node = self._choose(transaction)
        if step.status != "READY" or node is None or not transaction.lock(("nodes", node.node_id)):
            return None
        raised = 0 if world.mutant is Mutant.LEASE_VERSION_STAYS and step.lease_version else 1
        version = LeaseVersion(step.lease_version + raised)
        attempt_id = AttemptId(world.new_id(f"{step_id}/attempt"))
        sequence = node.last_sequence + 1
        until_s = leases.renewed_until_s(world.database.now_s(), world.figures)
        row = AttemptRow(
            attempt_id, step_id, node.node_id, sequence, version, until_s, "DISPATCHED"
        )
        transaction.put("attempts", attempt_id, row)
        transaction.put("steps", step_id, replace(step, status="RUNNING", lease_version=version))
        transaction.put("nodes", node.node_id, replace(node, last_sequence=sequence))
        return node.node_id

    def _choose(self, transaction: Transaction) -> NodeTableRow | None:
        world = self._replica.world
        now_s = world.database.now_s()
        seen = world.replicas_seen(transaction)
        live = []
        for node_id in world.nodes:
            node: NodeTableRow = transaction.get("nodes", node_id)
            row = leases.NodeRow(node.replica_id, node.seen_at_s, node.is_silent)
            held = sum(
                1
                for attempt in world.attempt_rows(transaction)
                if attempt.node_id == node_id and not attempt.is_terminal
            )
            if held < SLOTS_PER_NODE and leases.node_is_live(row, seen, now_s, world.figures):
                live.append(node)
        return world.random.choice(live) if live else None

    def _wake(self, node_id: str | None) -> None:
        if node_id is None or self._replica.world.random.random() < 0.1:
            return
        for replica in self._replica.world.replicas:
            wake = partial(
                replica.deliver, replica.life, partial(replica.dispatch.send_to, node_id)
            )
            self._replica.kernel.after(0.003, wake)

    def send_to(self, node_id: str) -> None:
        session = self._replica.sessions.get(node_id)
        if session is not None:
            self.send(session)

    def send_all(self) -> None:
        for session in list(self._replica.sessions.values()):
            self.send(session)

    def send(self, session: Session) -> None:
        """Mark what is unacked as SENT, and write it to the stream once that is committed."""
        session.is_send_wanted = session.is_sending
        if session.is_sending:
            return
        session.is_sending = True
        number = session.last_number
        world = self._replica.world

        def body(transaction: Transaction) -> list[Run]:
            node: NodeTableRow = transaction.get("nodes", session.node_id)
            if node.generation != session.generation:
                return []
            rows = [
                row
                for row in world.attempt_rows(transaction)
                if row.node_id == session.node_id
                and row.sequence > node.acked_sequence
                and not row.is_terminal
            ]
            now_s = world.database.now_s()
            return [
                Run(
                    row.sequence,
                    row.attempt_id,
                    row.lease_version,
                    row.step_id,
                    leases.run_remaining_s(row.lease_expires_at_s, now_s, world.figures),
                    number,
                )
                for row in sorted(rows, key=lambda row: row.sequence)
            ]

        def write(runs: list[Run] | None) -> None:
            session.is_sending = False
            if session.is_send_wanted:
                self.send(session)
            now_s = self._replica.kernel.now_s
            for run in runs or ():
                if now_s - session.sent_at_s.get(run.sequence, -9.0) < 1.0:
                    continue
                session.sent_at_s[run.sequence] = now_s
                if world.mutant is Mutant.HEARTBEAT_NUMBER_READ_LAST:
                    run = replace(run, last_heartbeat_number=session.last_number)  # noqa: PLW2901
                session.stream.send_down(run)

        world.database.submit(self._replica, [ATTEMPTS_TABLE], body, write)
