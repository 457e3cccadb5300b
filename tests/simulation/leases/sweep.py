"""The sweep of a replica: leases that ran out, and those that a clock left too long."""

from dataclasses import replace
from typing import TYPE_CHECKING

from control_plane.core.executions.domain import AttemptId
from control_plane.core.nodes import leases
from control_plane.core.nodes.leases import DatabaseSeconds, LeaseGuard
from tests.simulation.leases.database import ATTEMPTS_TABLE, Key, Transaction
from tests.simulation.leases.messages import NodeTableRow
from tests.simulation.leases.mutants import Mutant
from tests.simulation.leases.sessions import facts_of, lose

if TYPE_CHECKING:
    from tests.simulation.leases.replica import Replica


class Sweep:
    """One sweep at a time over the attempts whose leases are over."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self._is_running = False

    def run(self) -> None:
        if self._is_running:
            return
        self._is_running = True

        def done(_: object) -> None:
            self._is_running = False

        def judged(result: tuple[LeaseGuard, DatabaseSeconds] | None) -> None:
            if result is None:
                self._is_running = False
                return
            guard, as_of_s = result
            if self._replica.world.mutant is Mutant.SWEEP_USES_A_LATER_NOW:
                as_of_s = self._replica.world.database.now_s()
            chosen = self._replica.world.expiry_candidates(guard, as_of_s)
            if not chosen:
                self._is_running = False
                return

            def body(transaction: Transaction) -> bool:
                return self._expire(transaction, guard, as_of_s, chosen)

            self._replica.world.database.submit(self._replica, [ATTEMPTS_TABLE], body, done)

        self._replica.judge(judged)

    def _expire(
        self,
        transaction: Transaction,
        guard: LeaseGuard,
        as_of_s: DatabaseSeconds,
        chosen: list[AttemptId],
    ) -> bool:
        world = self._replica.world
        if world.mutant is Mutant.SWEEP_USES_A_LATER_NOW:
            as_of_s = world.database.now_s()
        for row in world.attempt_rows(transaction):
            node: NodeTableRow = transaction.get("nodes", row.node_id)
            key: Key = ("attempts", row.attempt_id)
            now_s = world.database.now_s()
            if world.mutant is Mutant.SWEEP_IGNORES_THE_CLOCK_AT_THE_ROW:
                now_s = as_of_s
            expires = leases.may_expire(facts_of(row, node), guard, as_of_s, now_s)
            if world.mutant is Mutant.SWEEP_DOES_NOT_REPEAT_ITS_PREDICATE:
                expires = row.attempt_id in chosen and not row.is_terminal
            bounded_s = leases.bounded_expiry_s(
                row.lease_expires_at_s, world.database.now_s(), world.figures
            )
            if expires and transaction.lock(key):
                lose(transaction, row.attempt_id, "EXPIRED")
            elif (
                not row.is_terminal
                and bounded_s != row.lease_expires_at_s
                and world.mutant is not Mutant.CLOCK_GOING_BACK_IS_NOT_SEEN
                and transaction.lock(key)
            ):
                transaction.put(*key, replace(row, lease_expires_at_s=bounded_s))
        return True
