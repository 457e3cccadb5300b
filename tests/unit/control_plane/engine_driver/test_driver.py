"""The driver over a store that only answers: hints, memory, and when the sweep looks."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from control_plane.core.engine.application import BATCH_SIZE_MAX, EngineDriver
from control_plane.core.engine.deciding import Deciding
from control_plane.core.engine.facts import ExecutionFacts
from control_plane.core.engine.ports import (
    AdvancedBatch,
    Advancing,
    DueExecutions,
    LoadedExecution,
)
from control_plane.core.executions.domain import ExecutionId, TaskId
from control_plane.core.executions.execution_state import ExecutionStatus
from control_plane.core.executions.outcomes import Aftermath
from control_plane.core.wakeups import LocalHints
from foundation.clock import ManualClock
from foundation.errors import UnavailableError
from foundation.ids import SequentialIds
from tests.unit.control_plane.engine.world import START, step, workflow


class _Store:
    """Answers what a test prepared, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.answer = AdvancedBatch()
        self.due_answer = DueExecutions([], None)
        self.due_count = 0
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def advance(self, execution_ids: Sequence[str], advancing: Advancing) -> AdvancedBatch:
        self.asked.append(list(execution_ids))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.answer

    async def due(self, count_max: int) -> DueExecutions:
        self.due_count += 1
        return self.due_answer


class _Bench:
    """A driver with everything around it in a test's hands."""

    def __init__(self) -> None:
        self.store = _Store()
        self.hints = LocalHints()
        self.clock = ManualClock()
        self.driver = EngineDriver(self.store, SequentialIds(), self.hints, self.clock)
        self.settled: list[Mapping[str, int]] = []
        self.driver.on_settled(self.settled.append)


@pytest.fixture
def bench() -> _Bench:
    return _Bench()


async def test_a_burst_is_advanced_in_full_batches(bench: _Bench) -> None:
    """What was hinted meanwhile shares a transaction, up to a bound, and none is left behind."""
    bench.hints.engine.add(f"e{number}" for number in range(BATCH_SIZE_MAX + 3))

    assert await bench.driver.advance_hinted() == 0.0
    assert await bench.driver.advance_hinted() is None

    assert [len(batch) for batch in bench.store.asked] == [BATCH_SIZE_MAX, 3]


async def test_without_hints_the_database_is_not_asked(bench: _Bench) -> None:
    """An idle engine costs nothing."""
    assert await bench.driver.advance_hinted() is None
    assert bench.store.asked == []


async def test_everybody_concerned_is_hinted_after_the_commit(bench: _Bench) -> None:
    """New events, requests, commands and freed capacity wake whoever serves them."""
    bench.store.answer = AdvancedBatch(
        sequences={"e": 3},
        told=frozenset({"e"}),
        asks_for_nodes=True,
        aftermath=Aftermath(execution_ids=frozenset({"x"}), node_ids=frozenset({"n"})),
    )

    await bench.driver.advance(["e"])

    hints = bench.hints
    assert hints.outbox.pending
    assert hints.callbacks.pending
    assert hints.scheduler.pending
    assert hints.watchers.take(9) == ["e"]
    assert hints.nodes.take(9) == ["n"]
    assert hints.engine.take(9) == ["x"]


async def test_sequences_never_go_back_in_memory(bench: _Bench) -> None:
    """A rival's older answer does not make a newer message look new again."""
    bench.store.answer = AdvancedBatch(sequences={"e": 5})
    await bench.driver.advance(["e"])
    bench.store.answer = AdvancedBatch(sequences={"e": 4})
    await bench.driver.advance(["e"])

    assert bench.driver.covers("e", 5)
    assert not bench.driver.covers("e", 6)


async def test_messages_are_let_go_for_what_the_sweep_looks_after(bench: _Bench) -> None:
    """Failed, ended and waiting executions count as settled, though nothing was advanced."""
    bench.store.answer = AdvancedBatch(sequences={"good": 2}, failed=frozenset({"bad"}))

    await bench.driver.advance(["good", "bad", "over"])

    (settled,) = bench.settled
    assert settled["good"] == 2
    assert min(settled["bad"], settled["over"]) > 10**9
    assert not bench.driver.covers("bad", 1)


async def test_an_advance_under_way_is_known(bench: _Bench) -> None:
    """So that a message about it waits for its end instead of asking for another."""
    bench.store.gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.driver.advance(["e"]), name="advance")
        await asyncio.sleep(0)
        assert bench.driver.is_advancing("e")
        assert not bench.driver.is_advancing("x")
        bench.store.gate.set()
    assert not bench.driver.is_advancing("e")


async def test_a_failure_that_strikes_all_gives_everything_back(bench: _Bench) -> None:
    """The loop backs off; the hints are there when it comes again."""
    bench.hints.engine.add(["e1", "e2"])
    bench.store.error = UnavailableError("the database is away")

    with pytest.raises(UnavailableError):
        await bench.driver.advance_hinted()

    assert bench.hints.engine.take(9) == ["e1", "e2"]
    assert bench.settled == []
    assert not bench.driver.is_advancing("e1")


async def test_the_sweep_asks_once_in_its_interval(bench: _Bench) -> None:
    """Woken in between, it says how long is left and asks nothing."""
    assert await bench.driver.sweep(5.0) == 5.0
    bench.clock.advance(2.0)
    assert await bench.driver.sweep(5.0) == pytest.approx(3.0)
    assert bench.store.due_count == 1
    bench.clock.advance(3.0)
    await bench.driver.sweep(5.0)
    assert bench.store.due_count == 2


async def test_the_sweep_comes_when_the_next_one_is_due(bench: _Bench) -> None:
    """Known due times, from the database or from an advance, shorten the wait."""
    bench.store.due_answer = DueExecutions(["late"], 1.5)
    assert await bench.driver.sweep(5.0) == pytest.approx(1.5)
    assert bench.hints.engine.take(9) == ["late"]

    bench.store.answer = AdvancedBatch(sequences={"e": 1}, due_in_s=0.5)
    await bench.driver.advance(["e"])
    assert bench.driver.due_wakeup.pending
    assert await bench.driver.sweep(5.0) == pytest.approx(0.5)


async def test_a_later_due_time_does_not_disturb_the_sweep(bench: _Bench) -> None:
    """Most executions want to be looked at in a day; the sweep sleeps on."""
    await bench.driver.sweep(5.0)
    bench.store.answer = AdvancedBatch(sequences={"e": 1}, due_in_s=86_400.0)

    await bench.driver.advance(["e"])

    assert not bench.driver.due_wakeup.pending


def test_documents_belong_to_the_last_status_only(bench: _Bench) -> None:
    """An execution that starts and fails in one decision tells of its failure in the end only."""
    compiled = workflow(step("first", input="${ input.missing }"))
    facts = ExecutionFacts(
        ExecutionId("e"),
        TaskId("t"),
        "a",
        status=ExecutionStatus.CREATED,
        input_json="{}",
        deadline_at=START + timedelta(hours=1),
    )
    execution = LoadedExecution(facts, compiled, START, 1, None, 0, 0, with_callback=True)

    advance = Deciding(SequentialIds())(execution)

    assert [event.sequence for event in advance.events] == [
        2 + place for place in range(len(advance.events))
    ]
    assert '"failure":{' in advance.events[-1].envelope
    assert all('"failure":null' in event.envelope for event in advance.events[:-1])


def test_an_advance_that_clears_a_failure_is_written(bench: _Bench) -> None:
    """Though nothing else changed, the stored error has to go."""
    compiled = workflow(step("first"))
    facts: Any = ExecutionFacts(
        ExecutionId("e"), TaskId("t"), "a", status=ExecutionStatus.SUCCEEDED
    )
    quiet = LoadedExecution(facts, compiled, START, 1, None, 0, 0, with_callback=False)
    failed = LoadedExecution(facts, compiled, START, 1, None, 1, 0, with_callback=False)

    assert Deciding(SequentialIds())(quiet).changes_nothing
    assert not Deciding(SequentialIds())(failed).changes_nothing
