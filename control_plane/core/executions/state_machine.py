"""What all state machines share: a table of moves, and the one place where it is enforced."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from control_plane.core.errors import TransitionForbiddenError

State = TypeVar("State", bound=StrEnum)


class StateMachine(Generic[State]):
    """A table of allowed moves between the states of one enum.

    `passages` names moves that are allowed only by passing through the states between;
    each hop of a passage is itself in the table.
    """

    __slots__ = ("_allowed", "_name", "_passages", "terminal")

    def __init__(
        self,
        name: str,
        allowed: Mapping[State, frozenset[State]],
        passages: Mapping[tuple[State, State], tuple[State, ...]] | None = None,
    ) -> None:
        """Take the machine's name (for messages) and its table; a state without moves is final."""
        self._name = name
        self._allowed = dict(allowed)
        self._passages = dict(passages or {})
        self.terminal = frozenset(state for state, targets in allowed.items() if not targets)

    def path(self, current: State, target: State) -> tuple[State, ...]:
        """Return the states to enter, in order, to get from `current` to `target`.

        Empty when `target` is already reached: a repeated move is a no-op. Raises
        TransitionForbiddenError when the table has no such move.
        """
        if current is target:
            return ()
        if target in self._allowed[current]:
            return (target,)
        passage = self._passages.get((current, target))
        if passage is None:
            raise self._forbidden(current, target)
        return passage

    def allows(self, current: State, target: State) -> bool:
        """Whether `path` would answer rather than raise."""
        return (
            current is target
            or target in self._allowed[current]
            or (current, target) in self._passages
        )

    def is_terminal(self, state: State) -> bool:
        """Whether nothing ever leaves this state."""
        return state in self.terminal

    def _forbidden(self, current: State, target: State) -> TransitionForbiddenError:
        targets = ", ".join(sorted(self._allowed[current])) or "nothing: it is final"
        return TransitionForbiddenError(
            f"{self._name} cannot move from {current} to {target}: {current} allows {targets}"
        )
