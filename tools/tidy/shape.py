"""Rules of shape: how long functions and modules may be, and that a module says its subject."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.tidy.sources import Finding, SourceFile

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 450


def check_shape(source: SourceFile) -> Iterator[Finding]:
    """Finds functions and modules that are too long, and modules without a first line."""
    lines = source.text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield Finding(
            source.path,
            1,
            "module-length",
            f"{lines} lines, at most {MODULE_LINES_MAX}; make it a package of the same name",
        )
    if source.text.strip() and ast.get_docstring(source.tree) is None:
        yield Finding(source.path, 1, "module-docstring", "say the module's subject in one line")
    yield from _long_functions(source)


def _long_functions(source: SourceFile) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield Finding(
                source.path,
                node.lineno,
                "function-length",
                f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}; split it by subject",
            )
