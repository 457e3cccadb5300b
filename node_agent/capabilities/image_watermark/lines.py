"""Breaks a long text into lines of about equal width."""

from __future__ import annotations

import unicodedata

_WIDE = frozenset(("W", "F"))
_NARROW_EMS = 0.55
# Closing marks do not start a line, and opening ones do not end it (UAX 14, CL and OP).
_CLOSING = frozenset(("Pe", "Pf", "Po"))
_OPENING = frozenset(("Ps", "Pi"))


def broken(text: str, count: int) -> tuple[str, ...]:
    """Break the text into at most `count` lines, at spaces and between ideographs."""
    pieces = _pieces(text)
    target = _width(text) / count
    lines, filled = [""], 0.0
    for piece in pieces:
        middle = filled + _width(piece) / 2
        if lines[-1].strip() and len(lines) < count and middle > target * len(lines):
            lines.append("")
        lines[-1] += piece
        filled += _width(piece)
    return tuple(line.strip() for line in lines)


def _pieces(text: str) -> list[str]:
    """The parts that stay whole; a space belongs to the part before it."""
    pieces = [""]
    for before, character in zip(f" {text}", text, strict=False):
        if pieces[-1] and _may_break(before, character):
            pieces.append("")
        pieces[-1] += character
    return pieces


def _may_break(before: str, after: str) -> bool:
    if unicodedata.category(after) in _CLOSING or unicodedata.category(before) in _OPENING:
        return False
    if unicodedata.combining(after) or unicodedata.category(after) in ("Zs", "Mc", "Cf"):
        return False
    return before == " " or _is_wide(before) or _is_wide(after)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in _WIDE


def _width(text: str) -> float:
    return sum(1.0 if _is_wide(character) else _NARROW_EMS for character in text)
