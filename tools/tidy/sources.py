"""Finds the files of the repository and reads each once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

CODE_FOLDERS = (
    "business_gateway",
    "control_plane",
    "foundation",
    "node_agent",
    "tests",
    "tools",
)
_TEXT_FOLDERS = (*CODE_FOLDERS, ".ci", "docs", "protos/tdp", "requirements")
_TEXT_SUFFIXES = {
    ".css", ".html", ".in", ".js", ".json", ".md", ".mjs", ".proto", ".py", ".service", ".sh",
    ".sql", ".toml", ".txt", ".yaml", ".yml",
}  # fmt: skip
_TEXT_NAMES = {"Makefile", "run", ".gitignore", ".editorconfig"}
_NOT_OURS = {"__pycache__", "node_modules", "vendor"}


@dataclass(frozen=True)
class SourceFile:
    """One file, by its path inside the repository (with forward slashes) and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed Python; raises SyntaxError with the file's name."""
        return ast.parse(self.text, filename=self.path)

    @property
    def is_test(self) -> bool:
        """Whether the file belongs to the tests and not to what they test."""
        return self.path.startswith("tests/")

    @property
    def module(self) -> str:
        """The dotted name under which Python imports the file; a package's for `__init__`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One breach of the style guide: where, which rule, and what to do."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def python_files(root: Path) -> list[SourceFile]:
    """Reads all Python of the repository that people write, in a stable order."""
    return [_read(root, path) for path in _walk(root, CODE_FOLDERS) if path.suffix == ".py"]


def text_files(root: Path) -> list[SourceFile]:
    """Reads all text that people write: code, contracts, SQL, documents and settings."""
    at_root = [path for path in root.iterdir() if path.is_file() and _is_text(path)]
    inside = [path for path in _walk(root, _TEXT_FOLDERS) if _is_text(path)]
    return [_read(root, path) for path in sorted({*at_root, *inside})]


def _is_text(path: Path) -> bool:
    return path.suffix in _TEXT_SUFFIXES or path.name in _TEXT_NAMES


def _walk(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and not _NOT_OURS.intersection(path.parts):
                yield path


def _read(root: Path, path: Path) -> SourceFile:
    return SourceFile(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
