"""The equations that must hold at any moment, each with what it means, and what a check found."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

DIFFERING_IDS_MAX: Final = 100
WINDOW_DEFAULT: Final = timedelta(hours=24)
WINDOW_MAX: Final = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Invariant:
    """An equation between two counts of durable facts.

    `key` names the statement that counts both sides (`conservation_<key>`); `equation` is what
    people read; `meaning` says what a difference would mean. A windowed one looks at what was
    created in a window; the others look at all that is live.
    """

    key: str
    equation: str
    meaning: str
    windowed: bool = True


INVARIANTS: Final = (
    Invariant(
        "answered",
        "tasks answered = tasks stored",
        "Every CreateTask that was answered left its task. A difference is an order whose sender "
        "believes it accepted and that is nowhere; the ids are those of the answers.",
    ),
    Invariant(
        "accepted",
        "tasks accepted = terminal + live",
        "Every task has a current execution, which is its newest run. A difference is a task "
        "that nothing carries on; the ids are tasks.",
    ),
    Invariant(
        "moving",
        "live executions = those with a next move",
        "Every live execution is due, waits for a node, a signal or a report, is paused, or was "
        "set aside and is shown. A difference stands still for ever; the ids are executions.",
        windowed=False,
    ),
    Invariant(
        "leftovers",
        "terminal executions = those without open work",
        "Nothing that is over still asks for a node or runs on one. The ids are executions.",
    ),
    Invariant(
        "events",
        "event sequences given = events stored",
        "The events of an execution are contiguous from 1 to its last sequence. The ids are "
        "executions.",
    ),
    Invariant(
        "callbacks",
        "events to tell = callbacks delivered, outstanding or dead",
        "Where there is an endpoint, each event has exactly one callback. The ids are executions.",
    ),
    Invariant(
        "commands",
        "attempts dispatched = RUN commands stored by nodes, outstanding or withdrawn",
        "Each attempt has one RUN command; one that was withdrawn belongs to an attempt that "
        "has ended, and one that was stored to an attempt that its node has accepted. The ids "
        "are attempts.",
    ),
    Invariant(
        "results",
        "attempts succeeded = results accepted",
        "Each success stands on exactly one accepted report of the same lease version. The ids "
        "are attempts.",
    ),
    Invariant(
        "slots",
        "slots taken = attempts that hold one",
        "What a node is counted to run is what runs there. The ids are nodes.",
        windowed=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Balance:
    """Both sides of an equation, and ids of what makes the difference, at most 100.

    The sides may be equal although single things differ; so the ids decide.
    """

    invariant: Invariant
    left_count: int
    right_count: int
    differing_ids: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether both sides agree, and each single thing does."""
        return self.left_count == self.right_count and not self.differing_ids
