"""Glob patterns over paths, matched segment by segment in time linear in both.

`*`, `?` and `[…]` stay within a segment, `**` spans any number of them. A pattern without a
slash matches at any depth, one with a slash from the root. What matches a folder matches all
beneath it; a slash at the end means folders only. Upper and lower case differ.
"""

import fnmatch
import re
from collections.abc import Iterable

from node_agent.capabilities.archive_clean.refusals import CleanOptionsError, quoted

PATTERN_CHARACTERS_MAX = 1_024
PATTERNS_MAX = 1_000

_ANY_DEPTH = "**"


class Glob:
    """One compiled pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile; raises CleanOptionsError for a pattern that can match nothing."""
        segments = [segment for segment in pattern.split("/") if segment]
        if not segments or len(pattern) > PATTERN_CHARACTERS_MAX:
            raise CleanOptionsError(
                f"glob {quoted(pattern)} is empty or longer than {PATTERN_CHARACTERS_MAX}"
                " characters; write a name, or folders and a name, with *, ?, [] or **"
            )
        self._folders_only = pattern.endswith("/")
        if "/" not in pattern.rstrip("/"):
            segments.insert(0, _ANY_DEPTH)
        # None stands for "**". fnmatch's own translation backtracks into no star twice.
        self._segments = tuple(
            None if segment == _ANY_DEPTH else re.compile(fnmatch.translate(segment))
            for segment in segments
        )

    def matches(self, path: str) -> bool:
        """Whether the path, or a folder it lies in, matches; directories end with a slash."""
        *folders, file = path.split("/")
        states = self._closure({0})
        for folder in folders:
            states = self._step(states, folder)
            if len(self._segments) in states:
                return True
        if not file or self._folders_only:
            return False
        return len(self._segments) in self._step(states, file)

    def _step(self, states: Iterable[int], segment: str) -> set[int]:
        after = set()
        for state in states:
            if state == len(self._segments):
                continue
            pattern = self._segments[state]
            if pattern is None:
                after.add(state)
            elif pattern.match(segment):
                after.add(state + 1)
        return self._closure(after)

    def _closure(self, states: set[int]) -> set[int]:
        """With the states reached by letting `**` stand for nothing."""
        for state in sorted(states):
            following = state
            while following < len(self._segments) and self._segments[following] is None:
                following += 1
                states.add(following)
        return states


def compile_globs(patterns: Iterable[str]) -> tuple[Glob, ...]:
    """All patterns of one option; raises CleanOptionsError for a bad one or too many."""
    globs = tuple(Glob(pattern) for pattern in patterns)
    if len(globs) > PATTERNS_MAX:
        raise CleanOptionsError(f"{len(globs)} globs are more than {PATTERNS_MAX}; join some")
    return globs
