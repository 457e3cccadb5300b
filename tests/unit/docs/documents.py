"""The repository's documents, and what they say in code."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
DOCUMENTS: Final = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)

_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)]+)\)")
_TOP_FOLDERS = (
    "business_gateway|control_plane|docs|examples|foundation|node_agent|protos|tests|tools"
)
_PATH = re.compile(rf"(?:{_TOP_FOLDERS})(?:/[\w.-]+)+/?|(?:{_TOP_FOLDERS})/")


def text_of(document: Path) -> str:
    """The document's text."""
    return document.read_text(encoding="utf-8")


def snippets(text: str, *languages: str) -> list[str]:
    """The fenced blocks of these languages ("" for those that name none)."""
    return [found["text"] for found in _FENCED.finditer(text) if found["language"] in languages]


def inline_code(text: str) -> list[str]:
    """What stands between single backticks, outside of fenced blocks."""
    return _INLINE.findall(_FENCED.sub("", text))


def paths_named(text: str) -> list[str]:
    """Inline code that is a path of this repository and nothing else."""
    return [code for code in inline_code(text) if _PATH.fullmatch(code)]


def links(text: str) -> Iterator[str]:
    """Targets of links to other files, without their fragments."""
    for found in _LINK.finditer(_FENCED.sub("", text)):
        target = found["target"].partition("#")[0]
        if target and "://" not in target:
            yield target


def command_lines(text: str) -> Iterator[str]:
    """Commands, from blocks without a language or of a shell, and from inline code."""
    for block in snippets(text, "", "bash", "sh", "console"):
        for line in block.splitlines():
            command = line.partition("#")[0].strip()
            if command:
                yield command
    yield from inline_code(text)
