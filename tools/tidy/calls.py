"""Rules about calls that product code must not make, and where each is allowed, with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.tidy.names import dotted_name, imported_names
from tools.tidy.sources import Finding, SourceFile

_CLOCK = "take the time from the injected clock"
_TASK = "start it in a TaskGroup, so that its failure is somebody's"
_OUTPUT = "log it, or write it to the stream that the caller gave"

BANNED = {
    "datetime.date.today": ("wall-clock", _CLOCK),
    "datetime.datetime.now": ("wall-clock", _CLOCK),
    "datetime.datetime.today": ("wall-clock", _CLOCK),
    "datetime.datetime.utcnow": ("wall-clock", _CLOCK),
    "time.time": ("wall-clock", _CLOCK),
    "time.time_ns": ("wall-clock", _CLOCK),
    "print": ("print", _OUTPUT),
    "asyncio.create_task": ("bare-task", _TASK),
    "asyncio.ensure_future": ("bare-task", _TASK),
}

# Path: rule: why it is right there. An entry that allows nothing any more is a finding itself.
ALLOWED = {
    "foundation/clock.py": {
        "wall-clock": "the one place that reads the machine's clock, for all others",
    },
    "foundation/grpc/server.py": {
        "bare-task": "a stop outlives a cancelled caller; each caller awaits it, shielded",
    },
    "foundation/lifecycle/service.py": {
        "bare-task": "a shutdown that a cancelled caller still awaits to its end",
    },
    "node_agent/core/journal/application.py": {
        "bare-task": "a race with the file's failure; both are cancelled by the same function",
    },
    "node_agent/core/session/application.py": {
        "bare-task": "a race of two waits, both cancelled and awaited by the same function",
    },
    "tools/dev_stack/__main__.py": {
        "bare-task": "a race of two waits, both cancelled and awaited by the same function",
    },
    "tools/dev_stack/processes.py": {
        "bare-task": "work that a cancelled caller still awaits to its end",
    },
    "tools/dev_stack/stack.py": {
        "bare-task": "a race of waits, all cancelled and awaited by the same function",
    },
}


def check_calls(source: SourceFile) -> Iterator[Finding]:
    """Finds banned calls and unnamed tasks; tests may read clocks, and are left out."""
    if source.is_test:
        return
    allowed = ALLOWED.get(source.path, {})
    found = list(_all_breaches(source))
    yield from (finding for finding in found if finding.rule not in allowed)
    for rule in allowed.keys() - {finding.rule for finding in found}:
        message = f"the exception from {rule} allows nothing any more; delete it in {__name__}"
        yield Finding(source.path, 1, "unused-exception", message)


def _all_breaches(source: SourceFile) -> Iterator[Finding]:
    names = imported_names(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            name = dotted_name(node.func, names)
            for rule, remedy in _breaches(node, name):
                yield Finding(source.path, node.lineno, rule, f"{name}: {remedy}")


def _breaches(call: ast.Call, name: str) -> Iterator[tuple[str, str]]:
    is_loops_own = name == "?.create_task" or name.endswith("loop.create_task")
    if name in BANNED:
        yield BANNED[name]
    elif is_loops_own:
        yield "bare-task", _TASK
    if name.endswith((".create_task", ".ensure_future")) and not _has_keyword(call, "name"):
        yield "unnamed-task", "make it with create_task and name=, so that logs can tell it apart"


def _has_keyword(call: ast.Call, name: str) -> bool:
    return any(keyword.arg in {name, None} for keyword in call.keywords)
