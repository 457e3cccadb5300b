"""The callback inbox on PostgreSQL: a batch of news is folded and written in one transaction."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from business_gateway.adapters.outbound.postgres.projection_rows import Change, Line, StoredEvent
from business_gateway.core.callbacks.domain import (
    Effect,
    EventSource,
    OrderProjection,
    accept,
    project,
)
from business_gateway.core.callbacks.ports import (
    Arrival,
    GapListener,
    News,
    NewsStore,
    OrderListener,
    Outcome,
)
from business_gateway.core.orders.state_machine import OrderStatus
from foundation.batching import Batcher
from foundation.failpoints import failpoint
from foundation.ids import is_id
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("business_gateway.sql.queries", "callbacks.sql")


class PostgresNewsStore:
    """Implements NewsStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, news: Sequence[News]) -> Sequence[Outcome | None]:
        """See NewsStore."""

        async def fold(connection: Connection) -> Sequence[Outcome | None]:
            batch = await _opened(connection, news)
            outcomes = [batch.apply(one) for one in news]
            await batch.write(connection)
            await failpoint("gateway.callback.commit.before")
            return outcomes

        outcomes = await self._database.run_transaction(fold)
        await failpoint("gateway.callback.commit.after")
        return outcomes


class QueuedInbox:
    """Implements Inbox: what arrives while a transaction runs shares the next one."""

    def __init__(self, store: NewsStore, orders: OrderListener, gaps: GapListener) -> None:
        self._store = store
        self._orders = orders
        self._gaps = gaps
        self.batcher: Final = Batcher[News, Outcome | None]("callback-inbox", self._add)

    async def add(self, news: News) -> Outcome | None:
        """See Inbox."""
        return await self.batcher.submit(news)

    async def _add(self, news: Sequence[News]) -> Sequence[Outcome | None]:
        outcomes = await self._store.add(news)
        # Here and not by who waits for the outcome: that one may have gone away meanwhile.
        for one, outcome in zip(news, outcomes, strict=True):
            if outcome is not None and outcome.changed:
                self._orders.announce(outcome.order_id)
            if outcome is not None and outcome.has_gap and _is_callback(one):
                self._gaps.gap_seen(outcome.order_id)
        return outcomes


@dataclass(slots=True)
class _Batch:
    """The orders that a batch concerns, locked, and what the news so far did to them."""

    lines: dict[str, Line]
    owners: dict[str, str]
    known_ids: frozenset[str]
    stored: dict[str, StoredEvent] = field(default_factory=dict)
    repeats: Counter[str] = field(default_factory=Counter)

    def apply(self, news: News) -> Outcome | None:
        line = self.lines.get(self._owner(news))
        if line is None:
            return None
        if isinstance(news, Arrival):
            effect = self._arrived(line, news)
        else:
            projected = accept(line.after, news.acceptance)
            effect = projected.effect
            line.move(projected, None)
            self._note_owner(line, news.acceptance.execution_id)
        return Outcome(line.order_id, effect, line.after.has_gap)

    async def write(self, connection: Connection) -> None:
        moved = [line for line in self.lines.values() if line.after != line.before]
        if not (moved or self.stored or self.repeats):
            return
        passed = [change for line in moved for change in line.changes[:-1]]
        await connection.execute(
            _SQL.store_news,
            *Line.columns(moved),
            *Change.columns(passed),
            list(self.repeats),
            list(self.repeats.values()),
            *StoredEvent.columns(list(self.stored.values())),
        )

    def _owner(self, news: News) -> str:
        if not isinstance(news, Arrival):
            return news.order_id
        return news.event.external_ref or self.owners.get(news.event.execution_id, "")

    def _arrived(self, line: Line, arrival: Arrival) -> Effect:
        event = arrival.event
        if event.event_id in self.stored:
            self.stored[event.event_id].arrivals += 1
            return Effect.DUPLICATE
        if event.event_id in self.known_ids:
            self.repeats[event.event_id] += 1
            return Effect.DUPLICATE
        projected = project(line.after, event)
        line.move(projected, event.event_id)
        self.stored[event.event_id] = StoredEvent(
            line.order_id, arrival, projected.effect, line.after.version
        )
        self.owners.setdefault(event.execution_id, line.order_id)
        self._note_owner(line, event.execution_id)
        return projected.effect

    def _note_owner(self, line: Line, execution_id: str) -> None:
        """Let later news of the batch find the order by its execution, as after a commit."""
        if line.after.execution_id == execution_id:
            self.owners[execution_id] = line.order_id


def _is_callback(news: News) -> bool:
    """Whether a gap behind it is news: what a query left open, the next query will not close."""
    return isinstance(news, Arrival) and news.source is EventSource.CALLBACK


async def _opened(connection: Connection, news: Sequence[News]) -> _Batch:
    """Find, lock and read the orders that the news may move."""
    events = [one.event for one in news if isinstance(one, Arrival)]
    nameless = sorted({one.execution_id for one in events if not one.external_ref})
    owners = await _owners(connection, nameless) if nameless else {}
    named = {
        one.event.external_ref if isinstance(one, Arrival) else one.order_id for one in news
    } | set(owners.values())
    rows = await connection.fetch(_SQL.lock_projections, sorted(filter(is_id, named)))
    # A statement of its own, after the locks: it sees what their last holders committed.
    known = await connection.fetch(
        _SQL.known_events,
        sorted({one.event_id for one in events}),
        [row["order_id"] for row in rows],
    )
    beyond: dict[str, set[int]] = {}
    for row in known:
        if row["order_id"] is not None:
            beyond.setdefault(str(row["order_id"]), set()).add(row["sequence"])
    lines = {str(row["order_id"]): _line(row, beyond) for row in rows}
    known_ids = frozenset(str(row["event_id"]) for row in known if row["event_id"] is not None)
    return _Batch(lines, owners, known_ids)


async def _owners(connection: Connection, execution_ids: Sequence[str]) -> dict[str, str]:
    rows = await connection.fetch(_SQL.find_orders_of_executions, execution_ids)
    # The order whose current execution it is comes last, and so wins over a stranger's claim.
    ordered = sorted(rows, key=lambda row: (row["is_current"], row["order_id"]))
    return {str(row["execution_id"]): str(row["order_id"]) for row in ordered}


def _line(row: Record, beyond: dict[str, set[int]]) -> Line:
    order_id = str(row["order_id"])
    projection = OrderProjection(
        task_id=_text(row["task_id"]),
        execution_id=_text(row["execution_id"]),
        run=row["run"],
        contiguous=row["last_contiguous_sequence"],
        projected=row["last_projected_sequence"],
        beyond=frozenset(beyond.get(order_id, ())),
        status_sequence=row["status_sequence"],
        status=OrderStatus(row["status"]),
        platform_status=row["platform_status"],
        progress_percent=row["progress_percent"],
        diagnosis=row["diagnosis"],
        diagnosis_json=row["diagnosis_json"],
        output_json=row["output_json"],
        version=row["version"],
    )
    return Line(order_id, projection, projection)


def _text(identity: object) -> str | None:
    return None if identity is None else str(identity)
