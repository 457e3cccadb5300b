"""Runs a capability's function on one attempt and turns whatever comes of it into an outcome."""

import asyncio
import errno
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from foundation.canonical_json import canonical_json
from foundation.errors import InvalidArgumentError, TdpError
from foundation.logging import redact
from node_agent.core.execution.ports import Failed, Outcome, Stopped, Succeeded, Usage, WorkFailure
from node_agent.sdk.context import BlockingContext, Context, WorkCancelledError
from node_agent.sdk.definition import Capability
from node_agent.sdk.errors import Fatal
from node_agent.sdk.whereabouts import home_of, place_of_error, place_of_function, trace_of

MESSAGE_CHARACTERS_MAX: Final = 4_096
_NOTHING: Final = Usage()
_ERRORS_SHOWN_MAX: Final = 5
# The place and the advice behind it must fit into the message too.
_CRASH_CHARACTERS_MAX: Final = 2_048
_LOG_CHARS: Final = 8 * 1024


async def execute(capability: Capability, context: Context, input_json: str) -> Outcome:
    """Run the work to its end, reports included; usage and log are the host's to fill in.

    Once `context.cancel` was called and this task was cancelled, the outcome is Stopped.
    """
    async with asyncio.TaskGroup() as group:
        context.reports.begin(group)
        try:
            return await _outcome(capability, context, input_json)
        finally:
            context.reports.end()


async def _outcome(capability: Capability, context: Context, input_json: str) -> Outcome:
    try:
        output_json = await _work(capability, context, input_json)
    except asyncio.CancelledError:
        if not context.cancelled:
            raise
        return Stopped(_NOTHING)
    except Exception as error:  # noqa: BLE001 - whatever a capability raises is its attempt's outcome
        if context.cancelled or any(
            isinstance(leaf, WorkCancelledError) for leaf in _leaves(error)
        ):
            return Stopped(_NOTHING)
        return Failed(failure_of(error, home_of(capability.function)), _NOTHING)
    return Succeeded(output_json, context.collection_ref, context.ledger.count, _NOTHING)


async def _work(capability: Capability, context: Context, input_json: str) -> str:
    output = await _call(capability, context, _input(capability, input_json))
    text = _output_json(capability, output)
    await context.ledger.report()
    return text


def _output_json(capability: Capability, output: object) -> str:
    model = capability.output_model
    if not isinstance(output, model):
        raise _bad_output(
            capability, f"returned a {type(output).__name__} instead of a {model.__name__}"
        )
    try:
        # A field that holds what it does not declare is an error, not a warning nobody reads.
        return canonical_json(output.model_dump_json(warnings="error"), field="output")
    except (PydanticSerializationError, InvalidArgumentError) as error:
        raise _bad_output(
            capability, f"returned a {model.__name__} that is no valid one: {error}"
        ) from error


def _bad_output(capability: Capability, problem: str) -> Fatal:
    place = place_of_function(capability.function)
    return Fatal(
        "OUTPUT_INVALID",
        _shown(
            f"{capability.name} ({place}) {problem}; return what its output model declares, or"
            " change the model and the version"
        ),
    )


async def _call(capability: Capability, context: Context, given: BaseModel) -> BaseModel:
    if capability.is_async:
        work = cast("Coroutine[Any, Any, BaseModel]", capability.function(context, given))
        return await work
    thread = asyncio.get_running_loop().run_in_executor(
        None, capability.function, BlockingContext(context), given
    )
    try:
        return cast("BaseModel", await asyncio.shield(thread))
    except asyncio.CancelledError:
        # A thread cannot be ended: it sees `cancelled`, or its process is killed.
        await asyncio.wait([thread])
        raise


def _input(capability: Capability, input_json: str) -> BaseModel:
    try:
        return capability.input_model.model_validate_json(input_json)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, one['loc'])) or 'the document'}: {one['msg']}"
            for one in error.errors()[:_ERRORS_SHOWN_MAX]
        )
        raise Fatal(
            "INPUT_INVALID", f"the input does not fit {capability.name}: {problems}"
        ) from error


def failure_of(error: Exception, home: Path | None = None) -> WorkFailure:
    """Say what an exception means for the attempt; an unexpected one is printed with its trace.

    TDP's own errors keep their reason and retryability; running out of memory or disk has a
    reason of its own; anything else may be a passing fault and is retryable, and the message
    names the line below `home` (the author's package) that it came from.
    """
    error = _telling(error)
    if isinstance(error, TdpError):
        message = _shown(error.message)
        return WorkFailure(error.reason, message, error.retryable, error.retry_delay_s)
    trace = trace_of(error, home)
    sys.stderr.write(trace)
    if isinstance(error, MemoryError):
        return WorkFailure(
            "MEMORY_LIMIT",
            "the work ran out of memory; raise its limit or give it less",
            retryable=False,
        )
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return WorkFailure(
            "DISK_FULL",
            "the node's disk is full; free some space",
            retryable=True,
            infrastructure=True,
        )
    return WorkFailure(
        "WORK_CRASHED", _crash(error, home), retryable=True, log_tail=redact(trace)[-_LOG_CHARS:]
    )


def _crash(error: Exception, home: Path | None) -> str:
    said = _shown(f"{type(error).__name__}: {error}")[:_CRASH_CHARACTERS_MAX]
    place = place_of_error(error, home)
    at = f" (at {place})" if place else ""
    return (
        f"{said}{at}; the log has the whole trace; repair it, or raise Retryable or Fatal there to"
        " say whether another try can help"
    )


def _telling(error: Exception) -> Exception:
    """Of a group's errors the one that was raised on purpose, else the first."""
    leaves = list(_leaves(error))
    meant = (leaf for leaf in leaves if isinstance(leaf, TdpError))
    return next(meant, leaves[0] if leaves else error)


def _leaves(error: BaseException) -> Iterator[Exception]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    elif isinstance(error, Exception):
        yield error


def _shown(text: str) -> str:
    return redact(text)[:MESSAGE_CHARACTERS_MAX]
