"""One child process that runs one attempt; the world watches when it lives."""

from typing import TYPE_CHECKING

from control_plane.core.executions.domain import AttemptId

if TYPE_CHECKING:
    from tests.simulation.leases.node import Entry, Node


class Runner:
    """Works until done, stopped or killed; stopping takes up to the stop budget."""

    def __init__(self, node: "Node", attempt_id: AttemptId, entry: "Entry") -> None:
        self.node = node
        self.attempt_id = attempt_id
        self.step_id = entry.step_id
        self.is_live = True
        self.is_stopping = False
        self.is_zombie = False
        """Its agent stands still or stood still past the deadline: only fencing can help."""
        self._entry = entry
        self._started_s = node.kernel.now_s
        node.world.runner_lives(self)
        node.after(entry.work_left_s, self._finish)

    def stop(self) -> None:
        """Stop; what was done since the start counts, as checkpointed."""
        if self.is_live and not self.is_stopping:
            self.is_stopping = True
            done_s = self.node.kernel.now_s - self._started_s
            self._entry.work_left_s = max(self._entry.work_left_s - done_s, 0.01)
            latest_s = self.node.world.figures.stop_budget_s
            # The extremes find more than what lies between them.
            self.node.after(self.node.world.random.choice([0.0, latest_s]), self._end)

    def kill(self) -> None:
        """Die with the agent."""
        self.is_live = False

    def freeze(self) -> None:
        self.is_zombie = True

    def thaw(self) -> None:
        if self.is_live and not self.is_stopping:
            self.is_zombie = False
            self.node.world.runner_lives(self)

    def _finish(self) -> None:
        self.node._check_deadlines()
        if self.is_live and not self.is_stopping:
            self._entry.work_left_s = 0.0
            self._end()

    def _end(self) -> None:
        if self.is_live:
            self.is_live = False
            self.node.runner_ended(self.attempt_id)
