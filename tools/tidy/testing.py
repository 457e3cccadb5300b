"""Rules about tests: each says what it shows, none is switched off, none sleeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.tidy.names import dotted_name, imported_names
from tools.tidy.sources import Finding, SourceFile

_SWITCHED_OFF = {
    *(f"pytest.{name}" for name in ("skip", "xfail", "importorskip")),
    *(f"pytest.mark.{name}" for name in ("skip", "skipif", "xfail")),
    *(f"unittest.{name}" for name in ("skip", "skipIf", "skipUnless", "expectedFailure")),
}
_SLEEPS = {"time.sleep", "asyncio.sleep"}


def check_tests(source: SourceFile) -> Iterator[Finding]:
    """Finds tests that are switched off, sleep, or do not say what they show."""
    if not source.is_test:
        return
    names = imported_names(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute | ast.Name):
            yield from _switched_off(source, node, dotted_name(node, names))
        elif isinstance(node, ast.Call):
            yield from _sleeping(source, node, dotted_name(node.func, names))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _speechless(source, node)


def _switched_off(source: SourceFile, node: ast.expr, name: str) -> Iterator[Finding]:
    if name in _SWITCHED_OFF:
        message = f"{name}: a test runs or does not exist; mark it interop or browser if it must"
        yield Finding(source.path, node.lineno, "switched-off-test", message)


def _sleeping(source: SourceFile, call: ast.Call, name: str) -> Iterator[Finding]:
    # Helpers may poll a condition that sends no signal; a test may not wait for time to pass.
    is_test_file = source.path.rpartition("/")[2].startswith("test_")
    if is_test_file and name in _SLEEPS and not _yields_only(call):
        message = f"{name}: wait for the signal or condition itself, with a time-out"
        yield Finding(source.path, call.lineno, "sleeping-test", message)


def _yields_only(call: ast.Call) -> bool:
    """Whether the call is sleep(0), which gives the loop a turn and takes no time."""
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and first.value == 0


def _speechless(
    source: SourceFile, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[Finding]:
    if function.name.startswith("test_") and ast.get_docstring(function) is None:
        message = f"{function.name}: say in one sentence what it shows"
        yield Finding(source.path, function.lineno, "test-docstring", message)
