"""The font: where it is, what it covers, how text is measured and drawn with it."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from PIL import ImageFont, features

from node_agent.capabilities.image_watermark.cmap import CmapError, read_coverage
from node_agent.capabilities.image_watermark.refusals import TextReason, TextRefused
from node_agent.capabilities.image_watermark.text import code_name, is_drawn, needs_shaping

_BUNDLE, _BUNDLE_FILE, _SIMPLIFIED_CHINESE = "noto_cjk_sans_otc", "NotoSansCJK-Regular.ttc", 2
_NAMED_CHARACTERS_MAX = 5
_MEASURED_AT_PX = 100


def bundled_font_path() -> Path:
    """Where the font that ships with the agent lies."""
    return Path(str(files(_BUNDLE) / _BUNDLE_FILE))


class WatermarkFont:
    """One face of a font file.

    Raises TextRefused (FONT_UNUSABLE) when the file cannot be opened as a font.
    """

    def __init__(self, path: Path, face: int = 0) -> None:
        self.path = path
        self.face = face
        try:
            with path.open("rb") as font:
                self._covers = read_coverage(font, face)
            self.at(_MEASURED_AT_PX, ImageFont.Layout.BASIC)
        except (OSError, CmapError) as error:
            message = f"{path.name}, face {face}: {error}"
            raise TextRefused(TextReason.FONT_UNUSABLE, message) from error

    def at(self, size_px: int, layout: ImageFont.Layout) -> ImageFont.FreeTypeFont:
        """Open the face at a size; the few sizes in use are kept."""
        return _open_face(self.path, self.face, size_px, layout)

    def missing(self, text: str) -> list[str]:
        """List the characters of the text that would come out as boxes, each once."""
        drawn = dict.fromkeys(character for character in text if is_drawn(character))
        return [character for character in drawn if not self._draws(character)]

    def _draws(self, character: str) -> bool:
        return unicodedata.category(character) == "Zs" or self._covers(ord(character))

    def _in_parts(self, character: str) -> str:
        """Give an accented letter that the font lacks as letter and accent, where it has these."""
        if self._draws(character):
            return character
        parts = unicodedata.normalize("NFD", character)
        return parts if all(self._draws(part) for part in parts) else character

    def prepared(self, text: str) -> tuple[str, ImageFont.Layout]:
        """Choose how to lay the text out, in characters that the font has.

        Shaping is used only where the script needs it, so that plain text looks the same
        on machines with and without the shaper.
        Raises TextRefused (TEXT_GLYPH_MISSING, TEXT_SHAPER_MISSING) when the text could not
        be drawn as written.
        """
        drawable = "".join(self._in_parts(character) for character in text)
        missing = self.missing(drawable)
        if missing:
            named = ", ".join(code_name(character) for character in missing[:_NAMED_CHARACTERS_MAX])
            message = f"{self.path.name} has no glyph for {named}; write it in a script that it has"
            raise TextRefused(TextReason.TEXT_GLYPH_MISSING, message)
        if not needs_shaping(drawable):
            return drawable, ImageFont.Layout.BASIC
        if not has_shaper():
            message = "the text's script needs shaping; install the system library libfribidi"
            raise TextRefused(TextReason.TEXT_SHAPER_MISSING, message)
        return drawable, ImageFont.Layout.RAQM


@lru_cache(maxsize=32)
def _open_face(
    path: Path, face: int, size_px: int, layout: ImageFont.Layout
) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(path), size_px, index=face, layout_engine=layout)


def has_shaper() -> bool:
    """Tell whether Pillow found HarfBuzz and FriBiDi at run time."""
    return bool(features.check_feature("raqm"))


@lru_cache(maxsize=1)
def bundled_font() -> WatermarkFont:
    """Open the font that ships with the agent, with Simplified Chinese forms."""
    return WatermarkFont(bundled_font_path(), _SIMPLIFIED_CHINESE)
