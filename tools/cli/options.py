"""Options that commands share, and how a command's coroutine is run."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer

from tools.cli.output import ExitCode

_Result = TypeVar("_Result")
_Row = TypeVar("_Row")
PAGE_SIZE_MAX: Final = 1000

Json = Annotated[
    bool, typer.Option("--json", help="Write JSON, one document a line, instead of text.")
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
