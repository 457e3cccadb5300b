"""CEL's tokens: enough of the language to find where an expression ends and what it refers to."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from control_plane.core.expressions.errors import ExpressionInvalidError, shown

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*)
    | (?P<text>(?:[rR][bB]?|[bB][rR])(?:'''(?:(?!''').)*'''|\"\"\"(?:(?!\"\"\").)*\"\"\"
                                      |'[^'\n]*'|"[^"\n]*")
              |[bB]?(?:'''(?:\\.|(?!''').)*'''|\"\"\"(?:\\.|(?!\"\"\").)*\"\"\"
                      |'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<quoted>`[^`\n]*`)
    | (?P<number>\d[0-9A-Za-z_]*)
    | (?P<mark>[^\s'"`])
    """,
    re.VERBOSE | re.DOTALL,
)
_QUADRATIC_MACROS: Final = frozenset({"map", "filter"})
_STEP_FIELDS: Final = frozenset({"output", "status"})


class TokenKind(StrEnum):
    """What a token is, as far as we need to know."""

    TEXT = "text"
    NAME = "name"
    QUOTED = "quoted"
    NUMBER = "number"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class Token:
    """One token with its place in the source."""

    kind: TokenKind
    text: str
    end: int

    def is_mark(self, mark: str) -> bool:
        """Whether this is the given punctuation character."""
        return self.kind is TokenKind.MARK and self.text == mark


@dataclass(frozen=True, slots=True)
class References:
    """What an expression reads: variables by name, steps by key, and whether it builds lists."""

    names: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()
    builds_lists: bool = False

    def __or__(self, other: "References") -> "References":
        return References(
            self.names | other.names,
            self.steps | other.steps,
            self.builds_lists or other.builds_lists,
        )


def tokens(source: str, start: int = 0) -> Iterator[Token]:
    """Yield the tokens from `start` on; raise ExpressionInvalidError at an open string."""
    position = start
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise ExpressionInvalidError(
                f"expression {shown(source[start:])} has a string that is never closed"
            )
        position = match.end()
        if match.lastgroup != "space":
            yield Token(TokenKind(match.lastgroup or ""), match.group(), position)


def closing_brace(source: str, start: int) -> int:
    """Return the place just after the brace that closes the `${` whose inside starts at `start`.

    Braces inside strings, comments and map literals do not count. Raises
    ExpressionInvalidError when there is none.
    """
    depth = 1
    for token in tokens(source, start):
        depth += token.is_mark("{") - token.is_mark("}")
        if depth == 0:
            return token.end
    raise ExpressionInvalidError(
        f"expression {shown(source[start:])} is never closed: add the missing }}"
    )


def references(source: str) -> References:
    """Return what the expression reads.

    Raises ExpressionInvalidError for a use of `steps` that does not name one step and one
    of its fields, since it could not be checked against the graph.
    """
    all_tokens = list(tokens(source))
    names: set[str] = set()
    steps: set[str] = set()
    builds_lists = False
    for place, token in enumerate(all_tokens):
        if token.kind is not TokenKind.NAME:
            continue
        if _is_member(all_tokens, place):
            builds_lists = builds_lists or token.text in _QUADRATIC_MACROS
            continue
        names.add(token.text)
        if token.text == "steps":
            steps.add(_step_key(source, all_tokens[place + 1 : place + 6]))
    return References(frozenset(names), frozenset(steps), builds_lists)


def _is_member(all_tokens: list[Token], place: int) -> bool:
    """Whether a dot with something before it makes this name a field or a method."""
    if place < 2 or not all_tokens[place - 1].is_mark("."):  # noqa: PLR2004 - operand and dot
        return False
    before = all_tokens[place - 2]
    return before.kind is not TokenKind.MARK or before.text in ")]}"


def _step_key(source: str, following: list[Token]) -> str:
    """Read `.key.field`, or `["key"].field`, after the name `steps`."""
    match following:
        case [dot, name, *rest] if dot.is_mark(".") and name.kind is TokenKind.NAME:
            key = name.text
        case [dot, name, *rest] if dot.is_mark(".") and name.kind is TokenKind.QUOTED:
            key = name.text[1:-1]
        case [left, text, right, *rest] if (
            left.is_mark("[") and text.kind is TokenKind.TEXT and right.is_mark("]")
        ):
            key = text.text[1:-1]
        case _:
            raise _unclear_step(source)
    match rest:
        case [dot, name, *_] if dot.is_mark(".") and name.text in _STEP_FIELDS:
            return key
        case _:
            raise _unclear_step(source)


def _unclear_step(source: str) -> ExpressionInvalidError:
    return ExpressionInvalidError(
        f"expression {shown(source)} must name a step and its field: write steps.<key>.output, "
        'steps.<key>.status, or steps["<key>"].output for a key with a dash'
    )
