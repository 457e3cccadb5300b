"""The result as a table for people, and as JSON for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from tools.bench.floor import Floor
from tools.bench.idle import Idle
from tools.bench.run import BenchResult, Latencies, Throughput

_STATEMENTS_SHOWN: Final = 12
_LATENCY_NAMES: Final = {
    "accepted": "CreateTask answered",
    "first_step_dispatched": "first step dispatched (database)",
    "first_step_on_node": "first step taken by the node (database)",
    "started_seen": "execution.started seen by the client",
    "result_seen": "result seen by the client",
}
_RATIO_NAMES: Final = {
    "executions_per_floor_commit": "executions per floor commit (16 clients)",
    "floor_commits_per_execution": "floor commits in the time of one execution",
    "cpu_in_floor_commits": "CPU of one execution, in floor commits' CPU",
    "result_p50_in_floor_latencies": "p50 to result, in single commits' latency",
    "cores_busy": "cores busy during throughput",
}


def as_table(result: BenchResult) -> str:
    """A page of plain text."""
    blocks = (
        _head(result),
        _floor(list(result.floor)),
        _throughput(result.throughput),
        _latencies(result.latencies),
        _idle(result.idle),
        _ratios(result.ratios),
    )
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def as_document(result: BenchResult) -> dict[str, Any]:
    """The same as JSON data, with units in the names."""
    document = dataclasses.asdict(result)
    document["throughput"]["executions_per_s"] = result.throughput.per_s
    document["throughput"]["cpu_ms_per_execution_total"] = result.throughput.cpu_ms
    document["idle"]["statements_per_minute"] = result.idle.statements_per_minute
    document["idle"]["percent_of_core_total"] = sum(result.idle.percent_of_core.values())
    document["ratios"] = result.ratios
    return document


def _head(result: BenchResult) -> Iterator[str]:
    settings = ", ".join(f"{name} {value}" for name, value in result.durability.items())
    yield f"TDP on {result.cores} cores, one control plane, one agent"
    yield f"  PostgreSQL: {settings}; NATS: each write synced"


def _floor(floor: list[Floor]) -> Iterator[str]:
    yield f"{'Floor: single-row commits':44}{'per s':>10}{'ms':>10}{'CPU ms':>10}"
    for one in floor:
        label = f"  {one.clients} client{'s' if one.clients > 1 else ''}"
        yield (
            f"{label:44}{one.commits_per_s:10.0f}{one.latency_ms:10.2f}"
            f"{one.postgres_cpu_ms_per_commit:10.3f}"
        )


def _throughput(throughput: Throughput) -> Iterator[str]:
    yield f"Throughput: {throughput.executions} executions of two inline steps"
    yield _figure("executions per second", throughput.per_s)
    yield _figure("seconds from first submission to last result", throughput.seconds)
    yield _figure("seconds in which all were accepted", throughput.submit_seconds)
    yield _figure("CPU ms per execution, all processes", throughput.cpu_ms)
    for name, milliseconds in throughput.cpu_ms_per_execution.items():
        yield _figure(f"  {name}", milliseconds)
    yield _figure("cores busy with other work meanwhile", throughput.others_cores)


def _latencies(latencies: Latencies) -> Iterator[str]:
    header = "".join(f"{name:>10}" for name in ("p50 ms", "p95 ms", "p99 ms", "max ms"))
    yield f"{f'From submit, one at a time, {latencies.result_seen.count} samples':44}{header}"
    for name, label in _LATENCY_NAMES.items():
        one = getattr(latencies, name)
        figures = (one.p50_ms, one.p95_ms, one.p99_ms, one.max_ms)
        yield f"{'  ' + label:44}" + "".join(f"{figure:10.1f}" for figure in figures)
    yield _figure("cores busy with other work meanwhile", latencies.others_cores)


def _idle(idle: Idle) -> Iterator[str]:
    yield f"Idle for {idle.seconds:.0f} s"
    for name, percent in idle.percent_of_core.items():
        yield _figure(f"CPU of {name}, percent of a core", percent)
    yield _figure("statements per minute", idle.statements_per_minute)
    for one in idle.statements[:_STATEMENTS_SHOWN]:
        gap = "" if one.interval_min_s is None else f"   at least {one.interval_min_s:.1f} s apart"
        yield _figure(f"  {one.application} {one.name}", one.per_minute) + gap


def _ratios(ratios: dict[str, float]) -> Iterator[str]:
    yield "Ratios, to compare between machines and runs"
    for name, value in ratios.items():
        yield _figure(_RATIO_NAMES[name], value, digits=3)


def _figure(label: str, value: float, digits: int = 2) -> str:
    return f"{'  ' + label:54}{value:10.{digits}f}"
