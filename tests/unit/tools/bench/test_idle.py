"""Statements read from a server's log, counted by pool and name."""

from __future__ import annotations

from tools.bench.idle import repeated, statements

LOG = """\
2026-11-30 19:00:00.000 UTC [10] tdp-control tdp_control LOG:  execute __asyncpg_stmt_1__: \
/* claim_due */ with due as (
	select 1
	from outbox_events
)
2026-11-30 19:00:00.001 UTC [10] tdp-control tdp_control DETAIL:  Parameters: $1 = '5'
2026-11-30 19:00:01.000 UTC [11] tdp-heartbeat tdp_control LOG:  statement: BEGIN;
2026-11-30 19:00:02.000 UTC [12] tdp-bench tdp_control LOG:  statement: checkpoint
2026-11-30 19:00:04.000 UTC [9]   LOG:  checkpoint starting: time
2026-11-30 19:00:05.500 UTC [10] tdp-control tdp_control LOG:  execute <unnamed>: \
/* claim_due */ with due as (
	select 1
	from outbox_events
)
2026-11-30 19:00:05.500 UTC [10] tdp-control tdp_control LOG:  execute <unnamed>: \
/* claim_due */ with due as (
	select 1
	from callback_deliveries
)
"""


def test_statements_are_named() -> None:
    """A named statement by its name and the table of its pump; none of the benchmark's own."""
    seen = [(one.application, one.name) for one in statements(LOG)]
    assert seen == [
        ("tdp-control", "claim_due of outbox_events"),
        ("tdp-heartbeat", "begin;"),
        ("tdp-control", "claim_due of outbox_events"),
        ("tdp-control", "claim_due of callback_deliveries"),
    ]


def test_statements_are_counted_per_minute() -> None:
    """The most frequent first, with the shortest time between two of a kind."""
    claims, begin, _ = repeated(statements(LOG), seconds=30)
    assert claims.name == "claim_due of outbox_events"
    assert (claims.per_minute, claims.interval_min_s) == (4, 5.5)
    assert (begin.name, begin.per_minute, begin.interval_min_s) == ("begin;", 2, None)
