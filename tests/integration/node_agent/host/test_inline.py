"""Inline work: stopped and timed out in the agent's own loop."""

import asyncio

from node_agent.adapters.outbound.process_host import ProcessHost
from node_agent.core.execution.ports import Failed, Stopped, Succeeded
from tests.integration.node_agent.host.conftest import MakeOrder
from tests.integration.node_agent.host.services import RecordedServices


async def test_inline_work_is_stopped(host: ProcessHost, order: MakeOrder) -> None:
    """Work that waits is cancelled when asked to stop."""
    services, stop = RecordedServices(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(host.run(order("test.inline"), services, stop))
        await services.first_progress.wait()
        stop.set()
    assert isinstance(running.result(), Stopped)


async def test_inline_work_that_answers_all_the_same_has_succeeded(
    host: ProcessHost, order: MakeOrder
) -> None:
    """A result that was reached in spite of the stop is not thrown away."""
    services, stop = RecordedServices(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(
            host.run(order("test.inline", given={"how": "late answer"}), services, stop)
        )
        await services.first_progress.wait()
        stop.set()
    assert isinstance(running.result(), Succeeded)


async def test_inline_work_is_timed_out(host: ProcessHost, order: MakeOrder) -> None:
    """Work that takes too long is cancelled and may be retried."""
    outcome = await host.run(
        order("test.inline", run_timeout_s=0.05), RecordedServices(), asyncio.Event()
    )
    assert isinstance(outcome, Failed)
    assert (outcome.failure.reason, outcome.failure.retryable) == ("RUN_TIMEOUT", True)


async def test_stopping_the_host_stops_inline_work(host: ProcessHost, order: MakeOrder) -> None:
    """Inline work ends with the host like any other."""
    services = RecordedServices()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(host.run(order("test.inline"), services, asyncio.Event()))
        await services.first_progress.wait()
        await host.stop()
    assert isinstance(running.result(), Stopped)
