"""The result as a table and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tools.bench.client import Watched
from tools.bench.facts import FirstStep
from tools.bench.floor import Floor
from tools.bench.idle import Idle, Repeated
from tools.bench.report import as_document, as_table
from tools.bench.run import BenchResult, Throughput, latencies_of

SUBMITTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def _result() -> BenchResult:
    watched = [Watched("e-1", SUBMITTED_AT, 0.002, 0.006, 0.020)]
    step = FirstStep(
        SUBMITTED_AT + timedelta(milliseconds=4), SUBMITTED_AT + timedelta(milliseconds=7)
    )
    return BenchResult(
        cores=2,
        durability={"fsync": "on"},
        floor=[Floor(1, 500, 2.0, 0.3), Floor(16, 4_000, 4.0, 0.2)],
        latencies=latencies_of(watched, {"e-1": step}, 0.25),
        throughput=Throughput(1_000, 10.0, 4.0, {"postgres": 6.0, "control-plane-1": 9.0}, 0.5),
        idle=Idle(60, {"postgres": 0.2}, (Repeated("tdp-control", "claim_due", 12, 5.0),)),
    )


def test_latencies_count_from_the_submission() -> None:
    """The database's moments and the client's are all measured from just before CreateTask."""
    latencies = _result().latencies
    assert latencies.first_step_dispatched.p50_ms == pytest.approx(4)
    assert latencies.first_step_on_node.p50_ms == pytest.approx(7)
    assert latencies.result_seen.p50_ms == pytest.approx(20)


def test_ratios_are_in_units_of_the_floor() -> None:
    """Throughput against many clients' commits, latency against a lone client's."""
    ratios = _result().ratios
    assert ratios["executions_per_floor_commit"] == pytest.approx(100 / 4_000)
    assert ratios["floor_commits_per_execution"] == pytest.approx(40)
    assert ratios["cpu_in_floor_commits"] == pytest.approx(75)
    assert ratios["result_p50_in_floor_latencies"] == pytest.approx(10)
    assert ratios["cores_busy"] == pytest.approx(1.5)


def test_the_document_has_what_the_table_has() -> None:
    """Computed figures are in the JSON as well, and all of it is plain data."""
    document = json.loads(json.dumps(as_document(_result())))
    assert document["throughput"]["executions_per_s"] == 100
    assert document["throughput"]["cpu_ms_per_execution_total"] == 15
    assert document["idle"]["statements_per_minute"] == 12
    assert document["ratios"]["cores_busy"] == 1.5


def test_the_table_names_each_figure() -> None:
    """A person finds each of the figures, by name, whatever the columns."""
    table = " ".join(as_table(_result()).split())
    for line in (
        "executions per second 100.00",
        "CPU ms per execution, all processes 15.00",
        "result seen by the client",
        "statements per minute 12.00",
        "tdp-control claim_due",
        "16 clients",
        "cores busy with other work meanwhile 0.25",
        "cores busy with other work meanwhile 0.50",
    ):
        assert line in table
