"""What becomes of an attempt whose child does well, badly, or nothing at all."""

import asyncio
import json
import os
from pathlib import Path

import psutil
import pytest

from foundation.errors import PermissionDeniedError
from node_agent.adapters.outbound.process_host import (
    ChildStartError,
    ProcessHost,
    ProcessHostConfig,
)
from node_agent.core.execution.ports import Failed, Grant, Outcome, Stopped, Succeeded
from node_agent.sdk import load_capabilities
from node_agent.sdk.discovery import LoadedCapability
from tests.integration.node_agent.host.conftest import MODULE, MakeOrder
from tests.integration.node_agent.host.services import RecordedServices

MIB = 1024 * 1024


def host_children() -> list[psutil.Process]:
    """The living children that a host started; the test's servers are children too."""
    return [one for one in psutil.Process().children() if "process_host.child" in _command(one)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""  # It has ended.


async def run(
    host: ProcessHost, order: object, services: RecordedServices | None = None
) -> Outcome:
    return await host.run(order, services or RecordedServices(), asyncio.Event())  # type: ignore[arg-type]  # a RunOrder


def failed(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def answer(outcome: Outcome) -> dict[str, object]:
    assert isinstance(outcome, Succeeded), outcome
    document: dict[str, object] = json.loads(outcome.output_json)
    return document


async def test_a_warm_child_runs_one_attempt_after_another(
    host: ProcessHost, order: MakeOrder
) -> None:
    """The same process serves the next attempt, and usage is told of each."""
    await host.start()
    first = await run(host, order())
    second = await run(host, order())
    assert answer(first)["pid"] == answer(second)["pid"] != os.getpid()
    assert first.usage.memory_bytes_max > MIB
    assert first.usage.cpu_time_ms < 5_000


@pytest.mark.parametrize(
    ("how", "reason", "retryable", "after_s"),
    [
        ("refuse", "TEST_REFUSED", False, None),
        ("retry", "TEST_BUSY", True, 7.5),
        ("raise", "WORK_CRASHED", True, None),
        ("wrong output", "OUTPUT_INVALID", False, None),
    ],
)
async def test_an_error_becomes_a_failure_with_its_reason(
    host: ProcessHost,
    order: MakeOrder,
    how: str,
    reason: str,
    retryable: bool,  # noqa: FBT001 - a parameter of the case
    after_s: float | None,
) -> None:
    """What a capability raises keeps reason, retryability and delay, and costs no child."""
    failure = failed(await run(host, order(given={"how": how}))).failure
    assert (failure.reason, failure.retryable, failure.next_retry_delay_s) == (
        reason,
        retryable,
        after_s,
    )
    if how in {"raise", "wrong output"}:
        assert "node_agent/host/capabilities.py:" in failure.message
    if how == "raise":
        assert "last words before raise" in failure.log_tail
        assert "nobody expected this" in failure.log_tail
    assert answer(await run(host, order()))["text"] == "done"


async def test_input_that_does_not_fit_is_refused_by_field(
    host: ProcessHost, order: MakeOrder
) -> None:
    """The message names the field that does not fit the model."""
    failure = failed(await run(host, order(given={"count": "many"}))).failure
    assert (failure.reason, failure.retryable) == ("INPUT_INVALID", False)
    assert "count" in failure.message


@pytest.mark.parametrize(
    ("how", "words"),
    [("exit", "exit status 3"), ("segfault", "SIGSEGV"), ("kill", "SIGKILL")],
)
async def test_a_dying_child_fails_its_attempt_alone(
    host: ProcessHost, order: MakeOrder, how: str, words: str
) -> None:
    """The failure says how the child ended, and the next attempt gets a new child."""
    failure = failed(await run(host, order(given={"how": how}))).failure
    assert (failure.reason, failure.retryable, failure.infrastructure) == (
        "CHILD_DIED",
        True,
        False,
    )
    assert words in failure.message
    if how == "exit":
        assert "last words before exit" in failure.log_tail
    assert answer(await run(host, order()))["text"] == "done"


async def test_a_hanging_child_is_killed_by_the_heartbeat_time_out(
    host: ProcessHost, order: MakeOrder
) -> None:
    """A child whose loop is blocked for ever gives no sign of life and is killed."""
    outcome = failed(await run(host, order(given={"how": "hang"}, heartbeat_timeout_s=1.0)))
    assert (outcome.failure.reason, outcome.failure.retryable) == ("HEARTBEAT_TIMEOUT", True)
    assert outcome.usage.duration_ms >= 1_000
    assert answer(await run(host, order()))["text"] == "done"


async def test_the_run_time_out_ends_a_child(host: ProcessHost, order: MakeOrder) -> None:
    """Work that takes longer than allowed is killed, and may be retried."""
    await host.start()
    failure = failed(await run(host, order(given={"how": "sleep"}, run_timeout_s=0.3))).failure
    assert (failure.reason, failure.retryable) == ("RUN_TIMEOUT", True)


@pytest.mark.parametrize(
    ("how", "size_bytes", "words"),
    [
        ("memory", 400 * MIB, "over its limit of"),
        ("helper", 400 * MIB, "over its limit of"),
        ("allocate", 4_096 * MIB, "ran out of memory"),
    ],
)
async def test_memory_over_the_limit_ends_a_child(
    host: ProcessHost, order: MakeOrder, how: str, size_bytes: int, words: str
) -> None:
    """Staying over the limit gets a child killed; one huge allocation fails inside it.

    What a process that the child started takes counts as the child's own.
    """
    wish = {"how": how, "size_bytes": size_bytes}
    outcome = failed(await run(host, order(given=wish, memory_bytes_max=256 * MIB)))
    assert (outcome.failure.reason, outcome.failure.retryable) == ("MEMORY_LIMIT", False)
    assert words in outcome.failure.message
    assert outcome.usage.memory_bytes_max < 1_024 * MIB
    assert answer(await run(host, order()))["text"] == "done"


@pytest.mark.parametrize("how", ["sleep", "hang"])
async def test_a_stop_ends_work_that_listens_and_work_that_does_not(
    host: ProcessHost, order: MakeOrder, how: str
) -> None:
    """Work that waits is cancelled; a blocked child is killed after its grace."""
    services, stop = RecordedServices(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(host.run(order(given={"how": how}), services, stop))
        await services.first_progress.wait()
        stop.set()
    assert isinstance(running.result(), Stopped)
    assert answer(await run(host, order()))["text"] == "done"


async def test_work_that_waits_for_a_slot_can_be_stopped(
    host: ProcessHost, order: MakeOrder
) -> None:
    """With all slots taken, a waiting attempt stops without having begun, and none is lost."""
    services, stop, stop_waiting = RecordedServices(), asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(host.run(order(given={"how": "sleep"}), services, stop))
        await services.first_progress.wait()
        waiting = group.create_task(host.run(order(), RecordedServices(), stop_waiting))
        following = group.create_task(run(host, order()))
        await asyncio.sleep(0)
        stop_waiting.set()
        assert isinstance(await waiting, Stopped)
        stop.set()
    assert isinstance(running.result(), Stopped)
    assert answer(following.result())["text"] == "done"


async def test_a_cancelled_run_kills_its_child(host: ProcessHost, order: MakeOrder) -> None:
    """Nobody watches the work any more, so it must not go on; the slot is usable again."""
    services = RecordedServices()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(
            host.run(order(given={"how": "sleep"}), services, asyncio.Event())
        )
        await services.first_progress.wait()
        children = host_children()
        running.cancel()
    gone, alive = await asyncio.to_thread(psutil.wait_procs, children, 5)
    assert not alive, gone
    assert answer(await run(host, order()))["text"] == "done"


async def test_stopping_the_host_stops_work_and_ends_every_child(
    host: ProcessHost, order: MakeOrder
) -> None:
    """After stop there is no child, and what ran is Stopped."""
    services = RecordedServices()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(
            host.run(order(given={"how": "sleep"}), services, asyncio.Event())
        )
        await services.first_progress.wait()
        await host.stop()
    assert isinstance(running.result(), Stopped)
    assert host_children() == []


async def test_a_refused_service_fails_the_attempt_with_its_reason(
    host: ProcessHost, order: MakeOrder
) -> None:
    """A grant that is denied reaches the capability as an error, and ends its attempt."""
    services = RecordedServices(refusal=PermissionDeniedError("no", reason="GRANT_DENIED"))
    outcome = await run(host, order("test.copy", given={"archive_ref": "x"}), services)
    assert failed(outcome).failure.reason == "GRANT_DENIED"
    assert not failed(outcome).failure.retryable


class Unanswered(RecordedServices):
    """Never answers a wish for a grant."""

    async def authorize(self, resource_ref: str) -> Grant:
        self.first_progress.set()
        await asyncio.Event().wait()
        raise AssertionError(resource_ref)


async def test_an_open_call_does_not_hold_up_a_stop(host: ProcessHost, order: MakeOrder) -> None:
    """A call that the core has not answered is given up together with its attempt."""
    services, stop = Unanswered(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(
            host.run(order("test.copy", given={"archive_ref": "x"}), services, stop)
        )
        await services.first_progress.wait()
        stop.set()
        async with asyncio.timeout(20):
            assert isinstance(await running, Stopped)


async def test_a_defect_of_the_core_is_raised_and_its_work_killed(
    host: ProcessHost, order: MakeOrder
) -> None:
    """An error that is no refusal is not hidden in the attempt: it is the agent's to die of."""
    services = RecordedServices(refusal=RuntimeError("the journal is gone"))
    with pytest.raises(ExceptionGroup) as caught:
        await run(host, order("test.copy", given={"archive_ref": "x"}), services)
    assert caught.group_contains(RuntimeError, match="the journal is gone")
    assert answer(await run(host, order()))["text"] == "done"


async def test_a_capability_that_cannot_be_loaded_stops_the_start(tmp_path: Path) -> None:
    """A child that does not come up is an error that shows what it wrote, and leaves nothing."""
    loaded = load_capabilities([f"{MODULE}:behave"])
    broken = {
        key: LoadedCapability("no.such.module:capability", one.capability)
        for key, one in loaded.items()
    }
    host = ProcessHost(broken, ProcessHostConfig(slot_count=2))
    with pytest.raises(ChildStartError, match=r"no\.such"):
        await host.start()
    await host.stop()
    assert host_children() == []


async def test_children_get_none_of_the_agents_variables(
    host: ProcessHost, order: MakeOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials in the agent's environment stay there."""
    monkeypatch.setenv("TDP_AGENT_CREDENTIAL", "secret")
    names = str(answer(await run(host, order(given={"how": "environment"})))["text"]).split()
    assert "PATH" in names
    assert not [name for name in names if name.startswith("TDP_")]


async def test_the_log_tail_is_the_end_of_what_was_written(
    host: ProcessHost, order: MakeOrder
) -> None:
    """Of much output the last 8 KiB are kept, and of one attempt only."""
    failure = failed(await run(host, order(given={"how": "talk", "size_bytes": 3 * MIB}))).failure
    assert failure.log_tail.endswith("the end\n")
    assert len(failure.log_tail) == 8 * 1024
    assert failed(await run(host, order(given={"how": "refuse"}))).failure.log_tail == ""


async def test_an_unknown_capability_is_the_nodes_fault(
    host: ProcessHost, order: MakeOrder
) -> None:
    """Another node may have it, so the attempt can be retried and the work is innocent."""
    failure = failed(await run(host, order("no.such"))).failure
    assert (failure.reason, failure.retryable, failure.infrastructure) == (
        "CAPABILITY_UNKNOWN",
        True,
        True,
    )


async def test_inline_work_takes_no_slot_and_no_process(
    host: ProcessHost, order: MakeOrder
) -> None:
    """The capability noop echoes its input in this loop, many at once, and starts no child."""
    before = host_children()
    outcomes = await asyncio.gather(
        *(run(host, order("noop", given={"n": number})) for number in range(20))
    )
    assert [answer(outcome) for outcome in outcomes] == [{"n": number} for number in range(20)]
    assert host_children() == before
