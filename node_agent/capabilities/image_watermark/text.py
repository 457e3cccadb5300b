"""What a watermark text may be, and whether its script has to be shaped."""

from __future__ import annotations

import unicodedata

from node_agent.capabilities.image_watermark.refusals import TextReason, TextRefused

TEXT_CHARACTERS_MAX = 100
# Controls, surrogates, line and paragraph separators have no place on one line.
_FORBIDDEN_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))
_INVISIBLE_CATEGORIES = frozenset(("Cf", "Zs"))
_RIGHT_TO_LEFT = frozenset(("R", "AL", "AN", "RLE", "RLO", "RLI"))
_VARIATION_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
# Blocks whose letters join, reorder or stack (Unicode 15, chapters 9 and 12 to 17), and
# Hangul written in parts; marks and right-to-left letters are told by their properties.
_SHAPED_BLOCKS = (
    range(0x0900, 0x0E00),  # Devanagari to Sinhala
    range(0x0E00, 0x1000),  # Thai, Lao, Tibetan
    range(0x1000, 0x10A0),  # Myanmar
    range(0x1100, 0x1200),  # Hangul Jamo
    range(0x1780, 0x18B0),  # Khmer, Mongolian
    range(0x1900, 0x1D00),  # Limbu to Vedic
    range(0xA800, 0xAB30),  # Syloti Nagri to Ethiopic, with Javanese and Cham
    range(0xA960, 0xA980),  # Hangul Jamo, extended
    range(0xABC0, 0xAC00),  # Meetei Mayek
    range(0xD7B0, 0xD800),  # Hangul Jamo, extended
    range(0x11000, 0x12000),  # Brahmi and its descendants
)


def prepare_text(text: str) -> str:
    """Trim and compose the text; what comes back is what is drawn.

    Raises TextRefused (TEXT_INVALID) when it is empty, longer than 100 characters, holds
    a control character or a line break, or has nothing to be seen.
    """
    trimmed = text.strip()
    if not 1 <= len(trimmed) <= TEXT_CHARACTERS_MAX:
        message = f"the text has {len(trimmed)} characters; 1 to {TEXT_CHARACTERS_MAX} are allowed"
        raise TextRefused(TextReason.TEXT_INVALID, message)
    for character in trimmed:
        if unicodedata.category(character) in _FORBIDDEN_CATEGORIES:
            message = f"the text holds {code_name(character)}; write it on one line without it"
            raise TextRefused(TextReason.TEXT_INVALID, message)
    if all(unicodedata.category(character) in _INVISIBLE_CATEGORIES for character in trimmed):
        message = "the text has no visible character"
        raise TextRefused(TextReason.TEXT_INVALID, message)
    return unicodedata.normalize("NFC", trimmed)


def needs_shaping(text: str) -> bool:
    """Tell whether drawing letter after letter, left to right, would misspell the text."""
    return any(_needs_shaping(character) for character in text)


def _needs_shaping(character: str) -> bool:
    category = unicodedata.category(character)
    if category.startswith("M") or category == "Cf":
        return True
    if unicodedata.bidirectional(character) in _RIGHT_TO_LEFT:
        return True
    return _in_any(ord(character), _SHAPED_BLOCKS)


def is_drawn(character: str) -> bool:
    """Tell whether the character wants a glyph of its own; joiners and selectors do not."""
    if unicodedata.category(character) == "Cf":
        return False
    return not _in_any(ord(character), _VARIATION_SELECTORS)


def code_name(character: str) -> str:
    """Name a character for a message, as U+XXXX NAME."""
    code = ord(character)
    return f"U+{code:04X} {unicodedata.name(character, 'unnamed')}"


def _in_any(code: int, blocks: tuple[range, ...]) -> bool:
    return any(code in block for block in blocks)
