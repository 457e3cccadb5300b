"""What must hold at every event, checked on committed rows and living runners."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from control_plane.core.nodes.leases import ListedLease
from tests.simulation.leases.database import Key
from tests.simulation.leases.messages import AttemptRow, StepRow
from tests.simulation.leases.runner import Runner

if TYPE_CHECKING:
    from tests.simulation.leases.node import Node
    from tests.simulation.leases.world import World


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    at_s: float
    rule: str
    detail: str


class Invariants:
    """Collects violations; the first one ends the run."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.violations: list[Violation] = []
        self.least_margin_s = float("inf")

    def broken(self, rule: str, detail: str) -> None:
        self.violations.append(Violation(self.world.kernel.now_s, rule, detail))

    # --- Commits. ---

    def committed(self, before: dict[Key, Any], writes: dict[Key, Any]) -> None:
        for (table, name), row in writes.items():
            old = before.get((table, name))
            if table == "attempts":
                self._attempt(old, row)
            elif table == "steps" and old is not None:
                self._step(old, row)

    def _attempt(self, old: AttemptRow | None, row: AttemptRow) -> None:
        if old is None or old.status == row.status:
            return
        if old.is_terminal:
            self.broken("terminal attempts stay", f"{row.attempt_id}: {old.status}→{row.status}")
        if row.status == "LOST":
            self._given_away(row)

    def _step(self, old: StepRow, row: StepRow) -> None:
        if row.lease_version < old.lease_version or (
            row.status == "RUNNING" != old.status and row.lease_version == old.lease_version
        ):
            self.broken("lease versions grow", f"{row.step_id}: {row.lease_version}")
        if old.status == "DONE" and row != old:
            self.broken("one result per step", f"{row.step_id}: {row}")

    def _given_away(self, row: AttemptRow) -> None:
        node = self.world.nodes[row.node_id]
        runner = node.runners.get(row.attempt_id)
        if runner is not None and runner.is_live and not runner.is_zombie:
            self.broken("stopped before the lease is given away", f"{row}")
        if row.reason == "MISSING" and row.attempt_id in node.journal:
            self.broken("only what is gone is missing", f"{row}")
        healthy = self.world.is_spaced and self.world.kernel.now_s > node.disturbed_until_s
        if row.reason == "EXPIRED" and healthy:
            self.broken("no lease of a healthy node expires", f"{row}")

    # --- Runners and nodes. ---

    def runner_lives(self, runner: Runner) -> None:
        row: AttemptRow = self.world.database.rows["attempts", runner.attempt_id]
        if row.is_terminal:
            self.broken("nothing runs on a lost lease", f"{row}")
        for node in self.world.nodes.values():
            for other in node.runners.values():
                same = other.step_id == runner.step_id and other is not runner
                if same and other.is_live and not other.is_zombie:
                    self.broken("one runner per step", f"{runner.step_id} also on {node.node_id}")

    def named_lost(self, node: "Node", lease: ListedLease) -> None:
        """Check that a lease which a node is told to drop is not still its own."""
        world = self.world
        row: AttemptRow | None = world.database.rows.get(("attempts", lease.attempt_id))
        guard = world.database.rows["guard", ""]
        if row is None or row.is_terminal or lease.attempt_id not in node.journal:
            return
        if max(row.lease_expires_at_s, guard.hold_until_s) > world.database.now_s():
            self.broken("only lost leases are named lost", f"{row}")

    # --- Now and then. ---

    def check_bounds(self) -> None:
        """Check that the lease of a node that is gone runs out in bounded time."""
        world = self.world
        bound_s = 3.5 * world.figures.lease_ttl_s
        for attempt_id in world.live:
            row: AttemptRow = world.database.rows["attempts", attempt_id]
            since_s = world.nodes[row.node_id].unreachable_since_s
            if since_s is None:
                continue
            if world.kernel.now_s > max(since_s, world.server_disturbed_until_s) + bound_s:
                self.broken("a dead agent's lease runs out", f"{row}")

    def check_end(self) -> None:
        open_steps = [step for step in self.world.step_rows() if step.status != "DONE"]
        if open_steps and not self.violations:
            self.broken("all steps end", f"{len(open_steps)} open: {open_steps[:2]}")
