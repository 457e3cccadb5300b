"""What commands that act on many things at once share: repeating a call that was cut off."""

from typing import Any, Final

from google.protobuf.message import Message
from rich.console import Console

from foundation.errors import DeadlineExceededError
from tdp.control.v1 import mutation_pb2
from tools.cli.connection import Connection, ControlPlane
from tools.cli.output import as_document, show

_CALLS_MAX: Final = 40


async def act_on_all(
    stub: Any,  # noqa: ANN401 - the generated stub classes have no common type
    method: str,
    request: Message,
    *,
    what: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Call a bulk RPC to its end, and say how many of `what` matched and were changed."""
    async with Connection.find().control() as control:
        answer = await _to_the_end(control, getattr(stub(control.channel), method), request)
    show(
        as_document(answer),
        as_json=as_json,
        render=lambda console: _render(console, answer, what, dry_run=dry_run),
    )


async def _to_the_end(control: ControlPlane, method: Any, request: Message) -> Any:  # noqa: ANN401 - any bulk RPC and its answer
    """Repeat a call that ran out of time: under its key it goes on where it was."""
    for _ in range(_CALLS_MAX - 1):
        try:
            return await control.ask(method, request)
        except DeadlineExceededError:
            continue
    return await control.ask(method, request)


def _render(console: Console, answer: Any, what: str, *, dry_run: bool) -> None:  # noqa: ANN401 - one of several answers
    if dry_run:
        console.print(f"{answer.matched_count} {what} match; nothing was changed")
        return
    refused = getattr(answer, "refused_count", 0)
    told = f"{answer.matched_count} {what} matched, {answer.changed_count} changed"
    console.print(told + (f", {refused} left alone" if refused else ""))
    if answer.outcome == mutation_pb2.MUTATION_OUTCOME_REPLAYED:
        console.print("[dim]an earlier call with this key did it[/]")
    if answer.has_more:
        console.print("there are more: repeat the command (with another key) to go on")
