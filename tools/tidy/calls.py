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

# Path, or folder with a slash at its end: rule: why it is right there.
ALLOWED = {
    "foundation/clock.py": {
        "wall-clock": "the one place that reads the machine's clock, for all others",
    },
}


def check_calls(source: SourceFile) -> Iterator[Finding]:
    """Finds banned calls and unnamed tasks; tests may read clocks, and are left out."""
    if source.is_test:
        return
    names = imported_names(source.tree)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted_name(node.func, names)
        for rule, remedy in _breaches(node, name):
            if not is_allowed(source.path, rule):
                yield Finding(source.path, node.lineno, rule, f"{name}: {remedy}")


def is_allowed(path: str, rule: str) -> bool:
    """Whether the list above grants the file, or a folder it is in, an exception from the rule."""
    return any(
        rule in rules and (path == place or (place.endswith("/") and path.startswith(place)))
        for place, rules in ALLOWED.items()
    )


def _breaches(call: ast.Call, name: str) -> Iterator[tuple[str, str]]:
    if name in BANNED:
        yield BANNED[name]
    elif name == "?.create_task" or name.endswith("loop.create_task"):
        yield "bare-task", _TASK
    elif name.endswith(".create_task") and not _has_keyword(call, "name"):
        yield "unnamed-task", "give it name=, so that logs and dumps can tell it from others"


def _has_keyword(call: ast.Call, name: str) -> bool:
    return any(keyword.arg in {name, None} for keyword in call.keywords)
