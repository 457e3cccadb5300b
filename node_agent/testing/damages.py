"""Inputs spoilt in the ways in which inputs are: cut off, empty, missing, incomplete."""

from collections.abc import Iterator
from pathlib import Path

from node_agent.sdk.definition import Capability
from node_agent.testing.rehearsal import Given


def damaged(given: Given, capability: Capability, folder: Path) -> Iterator[tuple[str, Given]]:
    """Yield what is wrong, in words, and the spoilt input; files are written to `folder`."""
    for reference, file in given.files.items():
        content = file.read_bytes()
        for what, data in (("cut off", content[: len(content) // 2]), ("empty", b"")):
            spoilt = folder / f"{what.replace(' ', '-')}-{file.name}"
            spoilt.write_bytes(data)
            yield f"{reference} {what}", Given(given.document, {**given.files, reference: spoilt})
    for name, field in capability.input_model.model_fields.items():
        key = field.alias or name
        if field.is_required() and key in given.document:
            rest = {one: value for one, value in given.document.items() if one != key}
            yield f"{key} left out", Given(rest, given.files)
            return
