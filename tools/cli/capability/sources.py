"""What a project's code is right now, so that a change is noticed."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_WATCHED: Final = {".py", ".toml"}
_LEFT_OUT: Final = {"__pycache__", "node_modules", "build", "dist", "output"}

State = Mapping[str, tuple[int, int]]
"""Time of the last change and size of each watched file, by path."""


def state_of(folder: Path) -> State:
    """Look at every file of code below a folder; hidden folders and environments are left out."""
    return dict(_files(folder))


def changed(before: State, after: State) -> list[str]:
    """Return the paths that came, went or changed, sorted."""
    both = before.keys() | after.keys()
    return sorted(path for path in both if before.get(path) != after.get(path))


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _is_code(Path(place), name)]
        for name in names:
            file = Path(place, name)
            if file.suffix in _WATCHED:
                try:
                    found = file.stat()
                except FileNotFoundError:
                    # Editors replace files; the next look sees the new one.
                    continue
                yield str(file.relative_to(folder)), (found.st_mtime_ns, found.st_size)


def _is_code(place: Path, name: str) -> bool:
    hidden = name.startswith(".") or name in _LEFT_OUT
    return not hidden and not (place / name / "pyvenv.cfg").exists()
