"""Where in an author's own code something is, so that a message can name file and line."""

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

_SDK_FOLDER: Final = str(Path(__file__).parent)


def place_of_function(function: Callable[..., Any]) -> str:
    """Return `file:line` of a function's definition."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def home_of(function: Callable[..., Any]) -> Path:
    """Return the folder of the outermost package that a function's file is in, else the file."""
    file = Path(inspect.unwrap(function).__code__.co_filename)
    folder = file.parent
    if not (folder / "__init__.py").exists():
        return file
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder


def place_of_error(error: BaseException, home: Path | None = None) -> str:
    """Return `file:line in function` of the author's line that an error came from, empty if none.

    That is the innermost frame below `home`; without one there, the innermost that is neither
    this kit's nor the import system's. A syntax error names its own place.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if _is_authors(frame.filename)
    ]
    at_home = [frame for frame in frames if home is not None and _is_below(frame.filename, home)]
    if not frames:
        return ""
    chosen = (at_home or frames)[-1]
    inside = "" if chosen.name == "<module>" else f" in {chosen.name}"
    return f"{chosen.filename}:{chosen.lineno}{inside}"


def trace_of(error: BaseException, home: Path | None = None) -> str:
    """Return the error's trace as text, from the first frame below `home` on if there is one."""
    begin = error.__traceback__
    while begin is not None and not _starts_at(begin, home):
        begin = begin.tb_next
    shown = error.__traceback__ if begin is None else begin
    return "".join(traceback.format_exception(type(error), error, shown))


def _starts_at(frame: TracebackType, home: Path | None) -> bool:
    return home is not None and _is_below(frame.tb_frame.f_code.co_filename, home)


def _is_authors(file: str) -> bool:
    return not file.startswith(("<", _SDK_FOLDER))


def _is_below(file: str, home: Path) -> bool:
    return Path(file).is_relative_to(home)
