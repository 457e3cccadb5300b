"""Runs inline capabilities in the agent's own event loop, many at once."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from foundation.clock import Clock
from node_agent.core.execution.ports import (
    AttemptServices,
    Failed,
    Outcome,
    RunOrder,
    Stopped,
    Usage,
    WorkFailure,
)
from node_agent.sdk.context import Context, Surroundings
from node_agent.sdk.definition import Capability
from node_agent.sdk.files import FileTransfers
from node_agent.sdk.running import execute


async def _no_one_listens() -> None:
    """An inline capability has no watchdog but its run time-out."""


async def run_inline(
    capability: Capability,
    order: RunOrder,
    surroundings: tuple[AttemptServices, FileTransfers, Clock],
    stops: Sequence[asyncio.Event],
) -> Outcome:
    """Run one attempt; ends soon once one of `stops` is set or the run time-out is over."""
    services, transfers, clock = surroundings
    context = Context(order, Surroundings(services, transfers, clock, _no_one_listens))
    started_s = clock.monotonic()
    async with asyncio.TaskGroup() as group:
        work = group.create_task(
            execute(capability, context, order.input_json), name=f"attempt {order.attempt_id}"
        )
        # Trivial work is done after one turn of the loop, and needs no watchers.
        await asyncio.sleep(0)
        timed_out = not work.done() and await _watched(group, work, context, order, stops)
    usage = Usage(duration_ms=int((clock.monotonic() - started_s) * 1_000))
    if timed_out:
        return Failed(_timed_out(order), usage)
    return Stopped(usage) if work.cancelled() else replace(work.result(), usage=usage)


async def _watched(
    group: asyncio.TaskGroup,
    work: asyncio.Task[Outcome],
    context: Context,
    order: RunOrder,
    stops: Sequence[asyncio.Event],
) -> bool:
    """Wait for the work's end, and cancel it when asked to; True if it took too long."""
    watchers = [
        group.create_task(_cancel_when(stop, context, work), name="inline stop") for stop in stops
    ]
    done, _ = await asyncio.wait([work], timeout=order.run_timeout_s)
    for watcher in watchers:
        watcher.cancel()
    if done:
        return False
    context.cancel()
    work.cancel()
    return not any(stop.is_set() for stop in stops)


async def _cancel_when(stop: asyncio.Event, context: Context, work: asyncio.Task[Outcome]) -> None:
    await stop.wait()
    context.cancel()
    work.cancel()


def _timed_out(order: RunOrder) -> WorkFailure:
    return WorkFailure(
        "RUN_TIMEOUT", f"the work was not done after {order.run_timeout_s} s", retryable=True
    )
