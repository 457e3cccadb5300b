"""Batches of news on real PostgreSQL end as one piece at a time would; F02, F04, F05, F09."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from business_gateway.adapters.outbound.postgres.callback_store import (
    PostgresNewsStore,
    QueuedInbox,
)
from business_gateway.core.callbacks.domain import (
    Acceptance,
    Effect,
    EventId,
    EventSource,
    OrderProjection,
    PlatformEvent,
    fold,
)
from business_gateway.core.callbacks.ports import Answer, Arrival, News, Outcome
from business_gateway.sync_failpoints import SYNC_FAILPOINTS
from foundation.errors import UnavailableError
from foundation.failpoints import install_failpoints, uninstall_failpoints
from foundation.postgres.pool import Database
from tests.integration.business_gateway.sync.desk import Desk, arrivals
from tests.unit.business_gateway.callbacks.stories import event, execution_id, stories

ORDERS = tuple(f"0190dddd-0000-7000-8000-00000000000{number}" for number in range(3))
STRANGER = "0190dddd-0000-7000-8000-0000000000ff"


@pytest.fixture
def store(gateway_database: Database) -> PostgresNewsStore:
    return PostgresNewsStore(gateway_database)


@pytest.fixture
def desk(gateway_database: Database) -> Desk:
    return Desk(gateway_database)


def of_order(order_id: str, one: PlatformEvent, *, named: bool = True) -> PlatformEvent:
    """The event as the platform would tell it of another order."""
    place = f"{(*ORDERS, STRANGER).index(order_id):02d}"
    return replace(
        one,
        event_id=EventId(f"{one.event_id[:9]}{place}{one.event_id[11:]}"),
        task_id=task_of(order_id),
        execution_id=execution_id(one.run, task_of(order_id)),
        external_ref=order_id if named else "",
    )


def task_of(order_id: str) -> str:
    return f"0190eeee-0000-7000-8000-{order_id[24:]}"


@st.composite
def batches(draw: st.DrawFn) -> list[list[News]]:
    """News of several orders, repeated, out of order, partly nameless or of a stranger."""
    random = Random(draw(st.integers(0, 10**6)))
    news: list[News] = []
    for order_id in (*ORDERS, STRANGER):
        story = draw(stories())
        for one in story.events:
            made = of_order(order_id, one, named=random.random() < 0.8)
            source = random.choice(list(EventSource))
            news += [Arrival(made, source)] * random.choice((1, 1, 2, 3))
        for run in range(1, story.run + 1):
            task = task_of(order_id)
            news.append(Answer(order_id, Acceptance(task, execution_id(run, task), run)))
        if random.random() < 0.3:
            # The same place in the history under another id, and another task's claim.
            first = of_order(order_id, story.events[0])
            spare = EventId(f"0190ffff{first.event_id[8:]}")
            news.append(Arrival(replace(first, event_id=spare)))
            foreign = replace(of_order(order_id, story.events[-1]), task_id=STRANGER)
            news.append(Arrival(replace(foreign, event_id=EventId(spare.replace("ffff", "fffe")))))
    random.shuffle(news)
    sizes = [random.randint(1, 12) for _ in news]
    made_batches: list[list[News]] = []
    while news:
        size = sizes.pop()
        made_batches.append(news[:size])
        news = news[size:]
    return made_batches


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(news=batches())
async def test_a_batch_does_what_its_items_do_one_at_a_time(
    store: PostgresNewsStore, desk: Desk, news: list[list[News]]
) -> None:
    """Outcomes, orders, every version and the inbox are the same, with repeats in the batch."""
    await _orders_anew(desk)
    together: list[Outcome | None] = []
    for batch in news:
        together += await store.add(batch)
    batched = await desk.everything()

    await _orders_anew(desk)
    singly: list[Outcome | None] = []
    for batch in news:
        for one in batch:
            singly += await store.add([one])
    assert together == singly
    assert batched == await desk.everything()


@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(news=batches(), writers=st.integers(2, 4))
async def test_concurrent_writers_end_where_the_fold_ends(
    store: PostgresNewsStore, desk: Desk, news: list[list[News]], writers: int
) -> None:
    """Several replicas take all batches at once: each event once, the projection is the fold's."""
    await _orders_anew(desk)

    async def write(number: int) -> None:
        order = Random(number)
        mine = [list(batch) for batch in news]
        order.shuffle(mine)
        for batch in mine:
            order.shuffle(batch)
            named = [one for one in batch if not isinstance(one, Arrival) or one.event.external_ref]
            await store.add(named)

    async with asyncio.TaskGroup() as group:
        for number in range(writers):
            group.create_task(write(number), name=f"writer-{number}")
    orders, changes, inbox = await desk.everything()
    for row in orders:
        told = {
            one.event.event_id: one.event
            for batch in news
            for one in batch
            if isinstance(one, Arrival)
            and one.event.external_ref == row["order_id"]
            and one.event.task_id == task_of(row["order_id"])
        }
        stored = {one["event_id"] for one in inbox if one["order_id"] == row["order_id"]}
        assert stored >= set(told)
        versions = [one["version"] for one in changes if one["order_id"] == row["order_id"]]
        assert versions == list(range(1, row["version"] + 1))
        if row["task_id"] == task_of(row["order_id"]):
            _check_projection(row, list(told.values()))


def _check_projection(row: dict[str, object], told: Sequence[PlatformEvent]) -> None:
    in_order = sorted(told, key=lambda one: (one.run, one.sequence))
    expected = fold(OrderProjection(), in_order)
    if not expected.platform_status or row["run"] != expected.run:
        return
    assert row["status"] == expected.status
    assert row["progress_percent"] == expected.progress_percent
    assert row["last_contiguous_sequence"] == expected.contiguous
    assert row["last_projected_sequence"] == expected.projected


async def _orders_anew(desk: Desk) -> None:
    await desk.clear()
    for order_id in ORDERS:
        await desk.new_order(order_id)


async def test_an_unknown_order_stores_nothing_and_the_rest_goes_on(
    store: PostgresNewsStore, desk: Desk
) -> None:
    """A stranger's event gets None; an order that appears later takes it."""
    await desk.new_order(ORDERS[0])
    strange = of_order(STRANGER, event(1, 1, "CREATED"))
    known = of_order(ORDERS[0], event(1, 1, "CREATED"))
    wild = replace(known, external_ref="invoice 7", event_id=EventId(STRANGER))
    first, second, third = await store.add(arrivals([strange, known, wild]))
    assert (first, third) == (None, None)
    assert second is not None
    assert second.effect is Effect.PROJECTED
    _, _, inbox = await desk.everything()
    assert [row["event_id"] for row in inbox] == [known.event_id]

    await desk.new_order(STRANGER)
    (later,) = await store.add(arrivals([strange]))
    assert later == Outcome(STRANGER, Effect.PROJECTED, has_gap=False)


async def test_an_event_without_reference_finds_its_order_by_execution(
    store: PostgresNewsStore, desk: Desk
) -> None:
    """The current execution and an earlier one resolve; an unknown one does not."""
    await desk.new_order(ORDERS[0])
    nameless = of_order(ORDERS[0], event(1, 2, "RUNNING"), named=False)
    assert list(await store.add(arrivals([nameless]))) == [None]
    await store.add(arrivals([of_order(ORDERS[0], event(1, 1, "CREATED"))]))
    (found,) = await store.add(arrivals([nameless]))
    assert found is not None
    assert found.order_id == ORDERS[0]
    await store.add(arrivals([of_order(ORDERS[0], event(2, 1, "CREATED"))]))
    (old,) = await store.add(arrivals([of_order(ORDERS[0], event(1, 3, "FAILED"), named=False)]))
    assert old == Outcome(ORDERS[0], Effect.OLD_RUN, has_gap=False)


async def test_a_new_run_forgets_the_cancel_and_when_the_last_ended(
    store: PostgresNewsStore, desk: Desk
) -> None:
    """completed_at is the current run's, and a cancel belongs to its run."""
    await desk.new_order(ORDERS[0])
    told = [of_order(ORDERS[0], event(1, number, state)) for number, state in
            enumerate(("CREATED", "CANCELING", "CANCELED"), start=1)]  # fmt: skip
    await store.add(arrivals(told[:1]))
    await desk.database.fetch("update orders set cancel_requested_at = tdp_now()")
    await store.add(arrivals(told[1:]))
    ended = await desk.order(ORDERS[0])
    assert ended["completed_at"] is not None
    assert ended["cancel_requested_at"] is not None
    await store.add(arrivals([of_order(ORDERS[0], event(2, 1, "CREATED"))]))
    begun = await desk.order(ORDERS[0])
    assert (begun["completed_at"], begun["cancel_requested_at"]) == (None, None)
    await store.add(arrivals([of_order(ORDERS[0], event(2, 2, "SUCCEEDED", 100))]))
    assert (await desk.order(ORDERS[0]))["completed_at"] > ended["completed_at"]


async def test_runs_that_end_within_one_batch_end_anew(
    store: PostgresNewsStore, desk: Desk
) -> None:
    """A second run that begins and ends in one transaction has its own completed_at."""
    await desk.new_order(ORDERS[0])
    await store.add(arrivals([of_order(ORDERS[0], event(1, 1, "FAILED"))]))
    first = (await desk.order(ORDERS[0]))["completed_at"]
    second = [event(2, 1, "CREATED"), event(2, 2, "SUCCEEDED", 100)]
    await store.add(arrivals([of_order(ORDERS[0], one) for one in second]))
    assert (await desk.order(ORDERS[0]))["completed_at"] > first


async def test_an_event_at_fault_fails_alone_and_is_not_acknowledged(
    store: PostgresNewsStore, desk: Desk
) -> None:
    """What the database refuses raises for its sender; the others of the burst are stored."""
    await desk.new_order(ORDERS[0])
    heard = _Heard()
    inbox = QueuedInbox(store, heard, heard)
    good = [of_order(ORDERS[0], event(1, number, "RUNNING", number)) for number in (1, 2, 4)]
    bad = replace(of_order(ORDERS[0], event(1, 3, "RUNNING")), type="\x00")
    async with asyncio.TaskGroup() as group:
        group.create_task(inbox.batcher.run(), name="inbox")
        answers = await asyncio.gather(
            *(inbox.add(Arrival(one)) for one in (good[0], bad, *good[1:])), return_exceptions=True
        )
        # A gap that a query left behind is no news.
        await inbox.add(Arrival(of_order(ORDERS[0], event(1, 6, "RUNNING")), EventSource.QUERY))
        await inbox.batcher.stop()
    assert [isinstance(one, Exception) for one in answers] == [False, True, False, False]
    assert (await desk.order(ORDERS[0]))["last_projected_sequence"] == 6
    assert heard.announced == [ORDERS[0]] * 3
    assert heard.gaps == [ORDERS[0]]


class _Heard:
    def __init__(self) -> None:
        self.announced: list[str] = []
        self.gaps: list[str] = []

    def announce(self, order_id: str) -> None:
        self.announced.append(order_id)

    def gap_seen(self, order_id: str) -> None:
        self.gaps.append(order_id)


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_reply_lost_around_the_commit_is_all_or_nothing(
    store: PostgresNewsStore, desk: Desk, point: str
) -> None:
    """F01 and F02: raised before the commit nothing is stored, after it everything is."""
    await desk.new_order(ORDERS[0])
    told = arrivals([of_order(ORDERS[0], event(1, 1, "CREATED"))])
    rules = f"gateway.callback.commit.{point}=drop_reply@1"
    install_failpoints(SYNC_FAILPOINTS, {"TDP_FAILPOINTS": rules})
    try:
        with pytest.raises(UnavailableError):
            await store.add(told)
        (again,) = await store.add(told)
    finally:
        uninstall_failpoints()
    assert again is not None
    assert again.effect is (Effect.PROJECTED if point == "before" else Effect.DUPLICATE)
    _, _, inbox = await desk.everything()
    assert [row["arrivals"] for row in inbox] == [1 if point == "before" else 2]
