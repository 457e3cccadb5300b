"""Finds modules that nothing reaches: not imported, not started, not named as an entry point."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tools.tidy.sources import Finding, SourceFile

# A string that is a module's name and nothing else, maybe with a `:function` in it.
_NAMES_A_MODULE = re.compile(r"(\w+(?:\.\w+)+)(?::\w+)?")
_STARTED_BY_MAKE = {"tools.bootstrap", "tools.console_packages"}


def dead_modules(sources: Iterable[SourceFile], root: Path) -> Iterator[Finding]:
    """Reports each module that no program and no test reaches.

    Product code that only tests reach is dead too. A module is reached from `__main__` files and
    from what pyproject.toml names, by imports and by strings that are a module's full name (a
    child process, a lazily loaded command).
    """
    files = {source.module: source for source in sources}
    uses = {module: _used_by(source) & files.keys() for module, source in files.items()}
    named = set(re.findall(r"\w+(?:\.\w+)+", (root / "pyproject.toml").read_text(encoding="utf-8")))
    programs = {module for module in files if module.endswith("__main__")} | _STARTED_BY_MAKE
    in_product = _reached(programs | named, uses)
    in_tests = _reached({module for module, file in files.items() if _is_run_by_pytest(file)}, uses)
    for module, source in sorted(files.items()):
        is_alive = module in in_product or (source.is_test and module in in_tests)
        if not is_alive and not source.path.endswith("__init__.py"):
            who = "nothing but tests" if module in in_tests else "nothing"
            yield Finding(
                source.path, 1, "dead-module", f"{who} uses this module; wire it up or delete it"
            )


def _is_run_by_pytest(source: SourceFile) -> bool:
    name = Path(source.path).stem
    return source.is_test and (name.startswith("test_") or name == "conftest")


def _reached(roots: Iterable[str], uses: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [root for root in roots if root in uses]
    while ahead:
        module = ahead.pop()
        if module not in reached:
            reached.add(module)
            ahead.extend(uses[module])
    return reached


def _used_by(source: SourceFile) -> set[str]:
    """Names all that the file imports or names, and the packages that importing it runs."""
    named = {name for node in ast.walk(source.tree) for name in _used_in(node, source)}
    return {package for name in (*named, source.module) for package in _with_parents(name)}


def _used_in(node: ast.AST, source: SourceFile) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _base(node, source)
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        match = _NAMES_A_MODULE.fullmatch(node.value)
        if match:
            yield match[1]


def _base(node: ast.ImportFrom, source: SourceFile) -> str:
    if node.level == 0:
        return node.module or ""
    is_package = source.path.endswith("/__init__.py")
    parts = source.module.split(".")
    kept = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))
