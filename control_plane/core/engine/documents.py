"""The variables that expressions see, read from stored documents only when asked for."""

from collections.abc import Callable
from typing import Any

from control_plane.core.engine.facts import ExecutionFacts, StepFacts
from control_plane.core.executions.domain import StepKey, StepRef
from control_plane.core.expressions.lexer import References
from control_plane.core.expressions.values import JsonValue, from_json

Current = Callable[[StepRef], StepFacts]
"""Looks up a step instance as it is after what has been decided so far."""


class Documents:
    """Parses each document at most once for a decision."""

    __slots__ = ("_current", "_execution", "_facts", "_parsed")

    def __init__(self, facts: ExecutionFacts, current: Current) -> None:
        """Read the execution's own documents from `facts`, the steps' through `current`."""
        self._facts = facts
        self._current = current
        self._parsed: dict[str, JsonValue] = {}
        self._execution: dict[str, JsonValue] = {
            "id": facts.execution_id,
            "task_id": facts.task_id,
            "application_id": facts.application_id,
            "run": facts.run,
            "external_ref": facts.external_ref,
            "failure": None,
        }

    def variables(self, reads: References, **more: JsonValue) -> dict[str, JsonValue]:
        """Return what an expression reads, and `more` (an item and its index).

        Raises DocumentInvalidError when a stored document cannot be read.
        """
        variables: dict[str, JsonValue] = {"execution": self._execution, **more}
        if "input" in reads.names:
            variables["input"] = self.parsed(self._facts.input_json)
        if reads.steps:
            variables["steps"] = {key: self._step(StepKey(key)) for key in reads.steps}
        return variables

    def parsed(self, text: str) -> Any:  # noqa: ANN401 - any JSON
        """Return the document, null for empty text."""
        if not text:
            return None
        if text not in self._parsed:
            self._parsed[text] = from_json(text)
        return self._parsed[text]

    def set_failure(self, failure_json: str) -> None:
        """Let expressions see why the execution is closing."""
        self._execution["failure"] = self.parsed(failure_json)

    def _step(self, key: StepKey) -> JsonValue:
        step = self._current(StepRef(key))
        return {"output": self.parsed(step.output_json), "status": step.status.value}
