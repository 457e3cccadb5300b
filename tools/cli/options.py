"""Options that commands share, and how a command's coroutine is run."""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from uuid import uuid4

import typer
from google.protobuf.duration_pb2 import Duration

from foundation.errors import InvalidArgumentError
from tools.cli.output import ExitCode

_Result = TypeVar("_Result")
_Row = TypeVar("_Row")
PAGE_SIZE_MAX: Final = 1000
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Json = Annotated[
    bool, typer.Option("--json", help="Write JSON, one document a line, instead of text.")
]
Key = Annotated[
    str, typer.Option("--idempotency-key", help="The same for each repetition; made up if empty.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many rows.")]


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a command to its end; SIGINT and SIGTERM break it off in order, with its own status."""
    try:
        return asyncio.run(_stoppable(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(ExitCode.INTERRUPTED) from None


async def _stoppable(work: Coroutine[Any, Any, _Result]) -> _Result:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


def key_of(given: str) -> str:
    """Return the idempotency key that was given, or a new one."""
    return given or f"cli-{uuid4()}"


def duration_of(text: str, option: str) -> Duration:
    """Return what `90s`, `30m`, `6h` or `2d` stands for; InvalidArgumentError for the option."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_S or not number.isdecimal():
        raise InvalidArgumentError.of_field(option, f"{text!r}: write 90s, 30m, 6h or 2d")
    made = Duration()
    made.FromTimedelta(timedelta(seconds=int(number) * _UNITS_S[unit]))
    return made


def document_of(text: str, option: str) -> str:
    """Return JSON text, or that of the file after an @; InvalidArgumentError for the option."""
    try:
        if text.startswith("@"):
            text = Path(text[1:]).read_text("utf-8")
        json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidArgumentError.of_field(option, f"is no JSON: {error}") from None
    return text


def group(help_text: str) -> typer.Typer:
    """Return an empty group of commands in the house's look."""
    made = typer.Typer(
        help=help_text, no_args_is_help=True, rich_markup_mode="rich", add_completion=False
    )
    # Without a callback, typer takes a group of one command for that command.
    made.callback()(_nothing)
    return made


def _nothing() -> None:
    pass


async def rows_of(
    page: Callable[[int, str], Awaitable[tuple[Sequence[_Row], str]]], limit: int
) -> tuple[list[_Row], str]:
    """Ask for pages (size, token) until `limit` rows; answer the rows and the next token."""
    rows: list[_Row] = []
    token = ""
    while len(rows) < limit:
        found, token = await page(min(limit - len(rows), PAGE_SIZE_MAX), token)
        rows.extend(found)
        if not token:
            break
    return rows, token
