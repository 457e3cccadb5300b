"""What the command line writes: tables and bars for people, JSON for programs, clear errors."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.console import Console
from rich.table import Table

from foundation.errors import ErrorCode, TdpError

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

# Wide enough that an id is never cut where no terminal says how wide it is.
_PLAIN_WIDTH_CHARS: Final = 160


def _console(stream: TextIO, *, stderr: bool = False) -> Console:
    free = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(stderr=stderr, highlight=False, width=_PLAIN_WIDTH_CHARS if free else None)


out: Final = _console(sys.stdout)
err: Final = _console(sys.stderr, stderr=True)


class ExitCode(IntEnum):
    """What the exit status says; published in `tdp --help` and the guides."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    UNREACHABLE = 3
    NEEDS_ATTENTION = 4
    INTERRUPTED = 130


_UNREACHABLE: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})
_FAILED: Final = frozenset({ErrorCode.INTERNAL, ErrorCode.UNKNOWN, ErrorCode.DATA_LOSS})


def write_json(document: object) -> None:
    """Write one JSON document on a line of its own to standard output."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def show(document: object, *, as_json: bool, render: Callable[[Console], None]) -> None:
    """Write the document as JSON, or render it for a person."""
    if as_json:
        write_json(document)
    else:
        render(out)


def table(title: str, *columns: str) -> Table:
    """Return an empty table in the house's look."""
    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def report_error(error: TdpError, *, as_json: bool = False) -> ExitCode:
    """Write what was wrong to standard error and return the exit status for it.

    As JSON it is one line: {"error": {reason, message, retryable, field_violations}}.
    """
    if as_json:
        sys.stderr.write(json.dumps({"error": _document(error)}, ensure_ascii=False) + "\n")
    else:
        _print_error(error)
    if error.code in _UNREACHABLE:
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED if error.code in _FAILED else ExitCode.REFUSED


def _document(error: TdpError) -> dict[str, object]:
    return {
        "reason": error.reason,
        "message": error.message,
        "retryable": error.retryable,
        "field_violations": [
            {"field": one.field, "description": one.description} for one in error.field_violations
        ],
    }


def _print_error(error: TdpError) -> None:
    # A path in it stays whole, to be clicked on or copied.
    err.print(f"[bold red]{error.reason}[/] {plain(error.message)}", soft_wrap=True)
    unsaid = (one for one in error.field_violations if one.description not in error.message)
    for violation in unsaid:
        err.print(f"  [bold]{violation.field}[/]: {plain(violation.description)}")


def status_style(status: str) -> str:
    """Return the status in its colour."""
    colours: Mapping[str, str] = {
        "COMPLETED": "green",
        "SUCCEEDED": "green",
        "READY": "green",
        "DURABLE": "green",
        "FAILED": "red",
        "NEEDS_ATTENTION": "red",
        "TIMED_OUT": "red",
        "CANCELED": "yellow",
        "CANCELING": "yellow",
        "CURRENT": "cyan",
    }
    colour = colours.get(status)
    return f"[{colour}]{status}[/]" if colour else status


def plain(text: str) -> str:
    """Return text from elsewhere so that nothing in it is taken for markup."""
    return text.replace("[", "\\[")


def enum_name(name: str, prefix: str) -> str:
    """Return an enum value's name without the prefix that the contract gives it."""
    return name.removeprefix(prefix)


def as_document(message: Any) -> Any:  # noqa: ANN401 - any message of the contract
    """Return a message as a JSON document with the contract's field names."""
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def moment(time: "Timestamp") -> str:
    """Return a time for people, in UTC to the second; a dash if it is not set."""
    if not time.seconds:
        return "–"
    return f"{time.ToDatetime():%Y-%m-%d %H:%M:%S}"
