"""One seeded world: three replicas, three nodes, one database, and a plan of faults."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from control_plane.core.executions.domain import AttemptId
from control_plane.core.nodes import leases
from control_plane.core.nodes.leases import (
    TEST_FIGURES,
    DatabaseSeconds,
    LeaseGuard,
    ListedLease,
    ReplicaId,
)
from tests.simulation.leases.database import Database, Key, Transaction
from tests.simulation.leases.faults import Faults
from tests.simulation.leases.invariants import Invariants, Violation
from tests.simulation.leases.kernel import Kernel
from tests.simulation.leases.messages import AttemptRow, NodeTableRow, StepRow
from tests.simulation.leases.mutants import Mutant
from tests.simulation.leases.network import Network
from tests.simulation.leases.node import Node
from tests.simulation.leases.replica import Replica
from tests.simulation.leases.runner import Runner

FAULTS_UNTIL_S = 26.0
END_S = 240.0
STEP_COUNT = 14


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one seed ended."""

    seed: int
    violations: tuple[Violation, ...]
    faults: tuple[str, ...]
    events: int
    ended_at_s: float


class World:
    """Everything of one run, and the seams through which mutants break rules."""

    def __init__(
        self, seed: int, mutant: Mutant = Mutant.NONE, focus: tuple[str, ...] = ()
    ) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.mutant = mutant
        self.figures = TEST_FIGURES
        self.is_spaced = seed % 3 != 0
        self.server_disturbed_until_s = 0.0
        self.kernel = Kernel()
        self.database = Database(self.kernel, self.random)
        self.network = Network(self.kernel, self.random)
        self.invariants = Invariants(self)
        self.live: set[AttemptId] = set()
        self._ready: set[str] = set()
        self._ids = 0
        self.replicas: list[Replica] = []
        self.replicas += [Replica(self, index) for index in range(3)]
        self.nodes = {f"node-{index}": Node(self, f"node-{index}") for index in range(3)}
        self.faults = Faults(self, focus)
        self.database.on_commit = self._committed

    def run(self) -> Outcome:
        """Run to the first violation, or until every step is done after the faults."""
        self._begin()
        self.kernel.run(END_S, self._is_over)
        self.invariants.check_end()
        return Outcome(
            self.seed,
            tuple(self.invariants.violations),
            tuple(self.faults.log),
            self.kernel.event_count,
            self.kernel.now_s,
        )

    def _begin(self) -> None:
        zero_s = DatabaseSeconds(0.0)
        for node_id in self.nodes:
            row = NodeTableRow(
                node_id, 0, None, zero_s, is_silent=True, last_sequence=0, acked_sequence=0
            )
            self.database.rows["nodes", node_id] = row
        for index in range(STEP_COUNT):
            created_s = index * FAULTS_UNTIL_S / STEP_COUNT
            self.kernel.at(created_s, partial(self._create_step, f"step-{index}"))
        for process in (*self.replicas, *self.nodes.values()):
            process.start()
        self.faults.plan(FAULTS_UNTIL_S)
        self.kernel.after(1.0, self._check_bounds)

    def _create_step(self, step_id: str) -> None:
        self.database.rows["steps", step_id] = StepRow(step_id, "READY", 0)
        self._ready.add(step_id)

    def _is_over(self) -> bool:
        if self.invariants.violations:
            return True
        if self.kernel.now_s < FAULTS_UNTIL_S or self.live or self._ready:
            return False
        return all(step.status == "DONE" for step in self.step_rows())

    def _check_bounds(self) -> None:
        self.invariants.check_bounds()
        self.kernel.after(1.0, self._check_bounds)

    def _committed(self, before: dict[Key, Any], writes: dict[Key, Any]) -> None:
        self.invariants.committed(before, writes)
        for (table, name), row in writes.items():
            if table == "attempts":
                (self.live.discard if row.is_terminal else self.live.add)(AttemptId(name))
            elif table == "steps":
                (self._ready.add if row.status == "READY" else self._ready.discard)(name)

    # --- Faults that need more than one part. ---

    def kill_replica(self, replica: Replica, lasts_s: float) -> None:
        """Kill a replica; its streams break, most of them noticed by the nodes."""
        if not replica.is_alive:
            return
        for session in replica.sessions.values():
            if self.random.random() < 0.7:
                session.stream.close_by_replica()
        replica.die()
        self.kernel.after(lasts_s, replica.start)

    def kill_node(self, node: Node, lasts_s: float) -> None:
        """Kill an agent and its children; its journal stays."""
        if node.is_alive:
            node.die()
            self.kernel.after(lasts_s, node.start)

    # --- What replicas read. ---

    def attempt_rows(self, transaction: Transaction) -> Iterator[AttemptRow]:
        """Return the live attempts as a transaction sees them, in a fixed order."""
        for attempt_id in sorted(self.live):
            yield transaction.get("attempts", attempt_id)

    def step_rows(self) -> list[StepRow]:
        return [row for (table, _), row in self.database.rows.items() if table == "steps"]

    def ready_steps(self) -> list[str]:
        return sorted(self._ready)

    def replicas_seen(self, transaction: Transaction) -> dict[ReplicaId, DatabaseSeconds]:
        rows = [transaction.get("replicas", str(index)) for index in range(len(self.replicas))]
        return dict(row for row in rows if row is not None)

    def expiry_candidates(self, guard: LeaseGuard, as_of_s: DatabaseSeconds) -> list[AttemptId]:
        """Return what a sweep's first look finds: expired, or pulled in."""
        chosen = []
        for attempt_id in sorted(self.live):
            end_s = self.database.rows["attempts", attempt_id].lease_expires_at_s
            late = leases.bounded_expiry_s(end_s, as_of_s, self.figures) != end_s
            if late or leases.is_expired(end_s, guard, as_of_s):
                chosen.append(attempt_id)
        return chosen

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids:04d}"

    # --- Rules with a seam. ---

    def judge(self, guard: LeaseGuard, now_s: DatabaseSeconds) -> LeaseGuard:
        if self._guard_is_blind(guard, now_s):
            return guard
        return leases.judge_guard(guard, now_s, self.figures)

    def stamp(self, guard: LeaseGuard, now_s: DatabaseSeconds, *, starved: bool) -> LeaseGuard:
        if self.mutant is Mutant.SKIPPED_ROWS_SET_NO_HOLD:
            starved = False
        if self._guard_is_blind(guard, now_s):
            return LeaseGuard(now_s, guard.hold_until_s)
        return leases.stamp_guard(guard, now_s, self.figures, starved=starved)

    def _guard_is_blind(self, guard: LeaseGuard, now_s: DatabaseSeconds) -> bool:
        back = self.mutant is Mutant.CLOCK_GOING_BACK_IS_NOT_SEEN and guard.stamped_at_s > now_s
        return back or self.mutant is Mutant.NO_HOLD

    # --- What the invariants watch. ---

    def runner_lives(self, runner: Runner) -> None:
        self.invariants.runner_lives(runner)

    def check_named_lost(self, node: Node, lease: ListedLease) -> None:
        self.invariants.named_lost(node, lease)

    def check_forgotten(self, node: Node, lease: ListedLease) -> None:
        if self.is_spaced and self.kernel.now_s > node.disturbed_until_s:
            self.invariants.named_lost(node, lease)
