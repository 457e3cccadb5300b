"""Resolves what a call calls to its full dotted name, through the imports of its file."""

from __future__ import annotations

import ast


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Maps each local name that an absolute import makes to what it stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.split(".")[0]
                names[local] = alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted_name(node: ast.expr, names: dict[str, str]) -> str:
    """Gives `datetime.datetime.now` for `now` of an imported datetime.

    Where the beginning is no name (a call's result, an item), it is written as `?`, so that
    `asyncio.get_running_loop().create_task` becomes `?.create_task`.
    """
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value, names)}.{node.attr}"
    return "?"
