"""Fetches what callbacks did not bring: events in a gap, and of orders quiet for too long.

What is fetched goes through the inbox under the events' own ids and is projected by the same
rule, so that a query and a late callback of the same event are one event.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from business_gateway.core.callbacks.domain import EventSource
from business_gateway.core.callbacks.envelope import parse_envelope
from business_gateway.core.callbacks.ports import (
    Arrival,
    Inbox,
    PlatformHistory,
    StaleOrder,
    StaleOrderStore,
)
from foundation.clock import Clock
from foundation.errors import NotFoundError, TdpError, UnavailableError
from foundation.failpoints import failpoint
from foundation.wakeup import Wakeup

GAPS_REMEMBERED_MAX: Final = 10_000
_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompensationConfig:
    """When and how much to ask; times in seconds.

    An order is asked about after `quiet_s` without news, a gap after `gap_grace_s` (deliveries
    may merely have overtaken each other). A sweep asks about at most `orders_max` orders and
    the next one begins no sooner than `sweep_interval_s` later; `queries_at_once_max` run side
    by side.
    """

    application_id: str
    quiet_s: float = 60.0
    sweep_interval_s: float = 10.0
    gap_grace_s: float = 1.0
    orders_max: int = 100
    queries_at_once_max: int = 4


class Compensation:
    """Implements GapListener; `run_once` is the body of its loop."""

    def __init__(
        self,
        store: StaleOrderStore,
        history: PlatformHistory,
        inbox: Inbox,
        clock: Clock,
        config: CompensationConfig,
    ) -> None:
        self._store = store
        self._history = history
        self._inbox = inbox
        self._clock = clock
        self._config = config
        self.wakeup: Final = Wakeup()
        # Monotonic moments from which on a gap is asked about; a forgotten one is swept later.
        self._gaps: dict[str, float] = {}
        self._next_sweep_at_s = clock.monotonic()
        # Since the start, for metrics: orders asked about, events fetched, queries failed.
        self.counts: Counter[str] = Counter()

    def gap_seen(self, order_id: str) -> None:
        """See GapListener."""
        if order_id not in self._gaps and len(self._gaps) < GAPS_REMEMBERED_MAX:
            self._gaps[order_id] = self._clock.monotonic() + self._config.gap_grace_s
            self.wakeup.set()

    async def run_once(self) -> float:
        """Ask about what is due; return the seconds until more can be.

        Raises UnavailableError when the platform or the database is out of reach.
        """
        due = self._due_gaps()
        if due:
            await self._ask_all(await self._store.take_gaps(due), of_newer_runs=False)
        if self._clock.monotonic() >= self._next_sweep_at_s:
            await self._sweep()
        return self._wait_s()

    def _due_gaps(self) -> list[str]:
        now_s = self._clock.monotonic()
        due = [order_id for order_id, at_s in self._gaps.items() if at_s <= now_s]
        due = due[: self._config.orders_max]
        for order_id in due:
            del self._gaps[order_id]
        return due

    async def _sweep(self) -> None:
        config = self._config
        # Set first: a sweep that fails is not repeated sooner than one that succeeds.
        self._next_sweep_at_s = self._clock.monotonic() + config.sweep_interval_s
        stale = await self._store.take_stale(config.quiet_s, config.orders_max)
        await self._ask_all(stale, of_newer_runs=True)
        due_in_s = await self._store.next_stale_in_s(config.quiet_s)
        # Without an open order, none can have been quiet for long before `quiet_s` from now.
        wait_s = config.quiet_s if due_in_s is None else due_in_s
        self._next_sweep_at_s = self._clock.monotonic() + max(wait_s, config.sweep_interval_s)

    def _wait_s(self) -> float:
        next_at_s = min([self._next_sweep_at_s, *self._gaps.values()])
        return max(0.0, next_at_s - self._clock.monotonic())

    async def _ask_all(self, orders: Sequence[StaleOrder], *, of_newer_runs: bool) -> None:
        slots = asyncio.Semaphore(self._config.queries_at_once_max)

        async def ask(order: StaleOrder) -> Exception | None:
            async with slots:
                return await self._ask(order, of_newer_runs=of_newer_runs)

        failures = await asyncio.gather(*(ask(order) for order in orders))
        unavailable = next((one for one in failures if isinstance(one, UnavailableError)), None)
        if unavailable is not None:
            # The orders were taken and are due again only later; the loop backs off meanwhile.
            raise unavailable

    async def _ask(self, order: StaleOrder, *, of_newer_runs: bool) -> Exception | None:
        """Ask about one order; a failure is returned, so that it keeps from no other one."""
        self.counts["orders"] += 1
        try:
            await failpoint("gateway.compensate.query.before")
            await self._fetch_current(order)
            if of_newer_runs:
                await self._fetch_newer(order)
            await failpoint("gateway.compensate.query.after")
        except TdpError as error:
            self.counts["failed"] += 1
            _log.warning(
                "compensation_failed", order_id=order.order_id, reason=error.reason, why=str(error)
            )
            return error
        except Exception as error:  # noqa: BLE001 - returned; the other orders are asked about
            self.counts["failed"] += 1
            _log.error("compensation_failed", order_id=order.order_id, exc_info=error)
            return error
        return None

    async def _fetch_current(self, order: StaleOrder) -> None:
        try:
            await self._fetch(order.order_id, order.execution_id, order.contiguous)
        except NotFoundError:
            _log.warning(
                "execution_forgotten_by_platform",
                order_id=order.order_id,
                execution_id=order.execution_id,
            )
            await self._store.close_gap(order.order_id, order.run)

    async def _fetch_newer(self, order: StaleOrder) -> None:
        """Look for a run that was begun elsewhere, or whose every callback was lost."""
        try:
            current = await self._history.current_run(order.task_id)
        except NotFoundError:
            return
        if current.run > order.run:
            await self._fetch(order.order_id, current.execution_id, 0)

    async def _fetch(self, order_id: str, execution_id: str, after: int) -> None:
        while True:
            page = await self._history.events_after(execution_id, after)
            if not page.envelopes:
                return
            events = [
                parse_envelope(one.encode(), self._config.application_id) for one in page.envelopes
            ]
            added = await asyncio.gather(
                *(self._inbox.add(Arrival(one, EventSource.QUERY)) for one in events),
                return_exceptions=True,
            )
            _raise_first(added)
            self.counts["events"] += len(events)
            _log.info(
                "events_fetched",
                order_id=order_id,
                execution_id=execution_id,
                after_sequence=after,
                count=len(events),
            )
            after = events[-1].sequence
            if after >= page.last_sequence:
                return


def _raise_first(results: Sequence[object]) -> None:
    for one in results:
        if isinstance(one, BaseException):
            raise one
