"""The projection ends the same in any order, with any loss and repetition; F02, F04, F05, F09."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from business_gateway.core.callbacks.domain import (
    Acceptance,
    Effect,
    OrderProjection,
    PlatformEvent,
    Projected,
    accept,
    fold,
    project,
)
from business_gateway.core.orders.state_machine import OrderStatus
from tests.unit.business_gateway.callbacks.stories import (
    Story,
    acceptance,
    event,
    execution_id,
    stories,
)

RANDOMS = st.integers(0, 10**6).map(Random)
News = PlatformEvent | Acceptance


def apply(order: OrderProjection, news: News) -> Projected:
    return accept(order, news) if isinstance(news, Acceptance) else project(order, news)


def apply_all(order: OrderProjection, *news: News) -> OrderProjection:
    for one in news:
        order = apply(order, one).order
    return order


def _facts(order: OrderProjection) -> OrderProjection:
    """All but the version, which counts the changes on the way there."""
    return replace(order, version=0)


def _query(story: Story, order: OrderProjection) -> list[PlatformEvent]:
    """What compensation fetches: the current run after the gap, and a newer run from its start."""
    return [
        one
        for one in story.events
        if (one.run == order.run and one.sequence > order.contiguous) or one.run == story.run
    ]


@given(story=stories(), random=RANDOMS, answered=st.booleans())
def test_any_order_and_repetition_ends_as_the_fold_in_order(
    story: Story, random: Random, *, answered: bool
) -> None:
    """Every event once or several times, in any order, with late answers to our own commands."""
    arrivals: list[News] = [one for one in story.events for _ in range(random.randint(1, 3))]
    if answered:
        arrivals += [acceptance(run) for run in range(1, story.run + 1)]
    random.shuffle(arrivals)

    assert _facts(apply_all(OrderProjection(), *arrivals)) == _facts(
        fold(OrderProjection(), story.events)
    )


@given(stories(), RANDOMS)
def test_lost_callbacks_are_made_good_by_queries(story: Story, random: Random) -> None:
    """Any callbacks may be lost or late as long as a query comes after them."""
    kept = [one for one in story.events if random.random() < 0.5]
    random.shuffle(kept)
    order = apply_all(OrderProjection(), *kept)
    fetched = _query(story, order)
    late = random.sample(story.events, len(story.events) // 2)
    news = fetched + late
    random.shuffle(news)

    assert _facts(apply_all(order, *news)) == _facts(fold(OrderProjection(), story.events))


@given(stories(), RANDOMS)
def test_versions_grow_and_ends_are_final(story: Story, random: Random) -> None:
    """A version rises by one with each visible change; a run's end is left only by a new run."""
    arrivals = [one for one in story.events for _ in range(random.randint(1, 2))]
    random.shuffle(arrivals)
    order = OrderProjection()
    for one in arrivals:
        after = project(order, one)
        moved = after.effect in {Effect.PROJECTED, Effect.GAP}
        assert after.order.version == order.version + (1 if moved else 0)
        assert bool(after.change_kind) is moved
        assert after.order.projected >= after.order.contiguous
        if order.is_over and after.order.status is not order.status:
            assert after.order.run > order.run
        if after.effect.is_history and after.effect is not Effect.LATE_FILL:
            assert after.order == order
        order = after.order


def test_a_gap_is_projected_at_once_and_its_filling_is_history() -> None:
    """Sequence 4 shows before 2 and 3; then after_sequence moves, and nothing visible does."""
    first = project(OrderProjection(), event(1, 1, "CREATED"))
    ahead = project(first.order, event(1, 4, "RUNNING", 40))
    assert (ahead.effect, ahead.order.progress_percent) == (Effect.GAP, 40)
    assert (ahead.order.contiguous, ahead.order.projected) == (1, 4)

    third = project(ahead.order, event(1, 3, "RUNNING", 20))
    assert (third.effect, third.order.contiguous) == (Effect.LATE_FILL, 1)
    second = project(third.order, event(1, 2, "RUNNING"))
    assert (second.effect, second.order.contiguous) == (Effect.LATE_FILL, 4)
    assert second.order.version == ahead.order.version
    assert not second.order.has_gap
    assert project(second.order, event(1, 3, "RUNNING", 20)).effect is Effect.DUPLICATE


def test_a_late_event_of_an_old_run_changes_nothing() -> None:
    """After run 2 began, run 1's end is history."""
    order = fold(OrderProjection(), [event(1, 1, "CREATED"), event(2, 1, "CREATED")])
    late = project(order, event(1, 2, "FAILED"))
    assert (late.effect, late.order) == (Effect.OLD_RUN, order)


def test_a_new_run_replaces_a_finished_one() -> None:
    """Status, progress, diagnosis, output and execution are the new run's."""
    failed = replace(event(1, 2, "FAILED", 30), diagnosis="why", diagnosis_json="{}")
    order = fold(OrderProjection(), [event(1, 1, "CREATED"), failed])
    assert (order.status, order.diagnosis) == (OrderStatus.NEEDS_ATTENTION, "why")
    begun = project(order, event(2, 1, "CREATED"))
    assert begun.change_kind == "NEW_RUN"
    assert begun.order.status is OrderStatus.PROCESSING
    assert (begun.order.progress_percent, begun.order.diagnosis) == (0, "")
    assert begun.order.execution_id == execution_id(2)


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        ("CREATED", OrderStatus.PROCESSING),
        ("QUEUED", OrderStatus.PROCESSING),
        ("RUNNING", OrderStatus.PROCESSING),
        ("CANCELING", OrderStatus.CANCELING),
        ("SUCCEEDED", OrderStatus.COMPLETED),
        ("FAILED", OrderStatus.NEEDS_ATTENTION),
        ("TIMED_OUT", OrderStatus.NEEDS_ATTENTION),
        ("CANCELED", OrderStatus.CANCELED),
    ],
)
def test_platform_states_get_their_business_meaning(status: str, meaning: OrderStatus) -> None:
    """Each state of the platform moves a submitted order to its meaning."""
    order = apply_all(OrderProjection(), acceptance(1), event(1, 1, status))
    assert order.status is meaning
    assert (order.progress_percent == 100) is (meaning is OrderStatus.COMPLETED)


def test_the_answer_to_submit_fills_only_what_is_empty() -> None:
    """An event that came first keeps what it said; the answer adds nothing."""
    order = fold(OrderProjection(), [event(1, 1, "CREATED"), event(1, 2, "SUCCEEDED", 100)])
    late = accept(order, acceptance(1))
    assert (late.effect, late.order) == (Effect.NO_CHANGE, order)
    first = accept(OrderProjection(), acceptance(1))
    assert (first.order.status, first.order.run) == (OrderStatus.PROCESSING, 1)
    assert (first.order.task_id, first.change_kind) == (order.task_id, "ACCEPTED")


def test_an_event_without_a_status_leaves_the_status_but_counts() -> None:
    """Progress without a status raises progress; a status before it is still taken over."""
    order = fold(OrderProjection(), [event(1, 1, "CREATED"), event(1, 3, "", 40)])
    assert (order.platform_status, order.progress_percent) == ("CREATED", 40)
    filled = project(order, event(1, 2, "RUNNING", 10))
    assert (filled.effect, filled.order.platform_status) == (Effect.PROJECTED, "RUNNING")
    assert (filled.order.progress_percent, filled.order.contiguous) == (40, 3)


def test_a_cancel_asked_for_here_outlives_late_news_but_not_the_end() -> None:
    """CANCELING stays under progress and the start of its run, until the platform's end."""
    asked = OrderProjection(status=OrderStatus.CANCELING)
    order = apply_all(asked, event(1, 1, "CREATED"), acceptance(1), event(1, 2, "RUNNING", 5))
    assert order.status is OrderStatus.CANCELING
    assert project(order, event(1, 3, "SUCCEEDED", 100)).order.status is OrderStatus.COMPLETED


def test_the_platforms_end_overrides_what_a_refused_command_left() -> None:
    """A refused CANCEL makes the order need attention until the run ends; progress does not."""
    running = fold(OrderProjection(), [event(1, 1, "CREATED"), event(1, 2, "RUNNING", 5)])
    refused = replace(running, status=OrderStatus.NEEDS_ATTENTION, diagnosis="refused")
    still = project(refused, event(1, 3, "RUNNING", 50)).order
    assert (still.status, still.diagnosis) == (OrderStatus.NEEDS_ATTENTION, "refused")
    ended = project(still, event(1, 4, "SUCCEEDED", 100)).order
    assert (ended.status, ended.diagnosis) == (OrderStatus.COMPLETED, "")


def test_a_stranger_with_our_reference_changes_nothing() -> None:
    """Another task, or another execution of the current run, is kept and not projected."""
    order = fold(OrderProjection(), [event(1, 1, "CREATED")])
    for stranger in (
        replace(event(2, 1, "FAILED"), task_id=execution_id(9)),
        replace(event(1, 2, "FAILED"), execution_id=execution_id(9)),
    ):
        assert project(order, stranger) == Projected(order, Effect.FOREIGN)
    assert accept(order, Acceptance(execution_id(9), execution_id(8), 1)).effect is Effect.FOREIGN


def test_nothing_follows_the_end_of_a_run_and_progress_never_falls() -> None:
    """What a platform should never send changes nothing that clients see."""
    order = fold(OrderProjection(), [event(1, 1, "CREATED"), event(1, 2, "RUNNING", 50)])
    lower = project(order, event(1, 3, "RUNNING", 20))
    assert (lower.effect, lower.order.progress_percent) == (Effect.NO_CHANGE, 50)
    ahead = project(order, event(1, 4, "RUNNING", 60)).order
    late = project(ahead, event(1, 3, "", 90))
    assert (late.effect, late.order.progress_percent) == (Effect.LATE_FILL, 60)
    ended = project(order, event(1, 3, "FAILED", 50)).order
    after = project(ended, event(1, 4, "RUNNING", 70))
    assert (after.effect, after.order.status) == (Effect.NO_CHANGE, OrderStatus.NEEDS_ATTENTION)


def test_a_late_answer_does_not_undo_a_newer_wish_or_run() -> None:
    """SUBMIT's answer, taken over late, moves neither an order asked to run again nor run 2."""
    failed = fold(OrderProjection(), [event(1, 1, "CREATED"), event(1, 2, "FAILED")])
    again = replace(failed, status=OrderStatus.SUBMITTING, platform_status="", diagnosis="")
    assert accept(again, acceptance(1)) == Projected(again, Effect.NO_CHANGE)
    second = accept(again, acceptance(2)).order
    assert (second.status, second.execution_id) == (OrderStatus.PROCESSING, execution_id(2))
    assert accept(second, acceptance(1)) == Projected(second, Effect.OLD_RUN)
    cancelled = replace(again, status=OrderStatus.CANCELING)
    assert project(cancelled, event(2, 1, "CREATED")).order.status is OrderStatus.CANCELING
    assert accept(cancelled, acceptance(2)).order.status is OrderStatus.CANCELING


def test_a_new_run_started_elsewhere_is_not_held_to_the_old_cancel() -> None:
    """CANCELING of run 1 ends with run 2's first event."""
    order = fold(OrderProjection(), [event(1, 1, "CREATED"), event(1, 2, "CANCELING")])
    assert project(order, event(2, 1, "CREATED")).order.status is OrderStatus.PROCESSING
