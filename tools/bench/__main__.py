"""Command line of the benchmark: `python -m tools.bench [--executions N] [--json]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foundation.clock import SystemClock
from foundation.errors import TdpError
from foundation.ids import SystemIds
from tools.bench.plan import BenchPlan
from tools.bench.report import as_document, as_table
from tools.bench.run import run_bench

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and write its result; 0, or 1 if there is none."""
    given = _parser().parse_args(arguments)
    clock = SystemClock()
    try:
        with _data_folder(keep=given.keep) as folder:
            plan = BenchPlan(
                folder,
                executions=given.executions,
                concurrency=given.concurrency,
                samples=given.samples,
                idle_s=given.idle_s,
                history=given.history,
            )
            result = asyncio.run(run_bench(plan, clock, SystemIds(clock), _say))
    except TdpError as error:
        _say(f"{error.reason}: {error}")
        return 1
    text = json.dumps(as_document(result), indent=2) + "\n" if given.json else as_table(result)
    sys.stdout.write(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    default = BenchPlan(Path())
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--executions", type=_count, default=default.executions)
    parser.add_argument(
        "--concurrency", type=_count, default=default.concurrency, help="CreateTask calls at once"
    )
    parser.add_argument(
        "--samples", type=_count, default=default.samples, help="executions for the latencies"
    )
    parser.add_argument(
        "--idle-s", type=_count, default=default.idle_s, help="seconds of the idle phase"
    )
    parser.add_argument(
        "--history", type=_count, default=0, help="finished executions in the tables beforehand"
    )
    parser.add_argument("--json", action="store_true", help="write JSON and not a table")
    parser.add_argument("--keep", action="store_true", help="keep the data and the logs")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


@contextmanager
def _data_folder(*, keep: bool) -> Iterator[Path]:
    """A fresh folder on the repository's disk, as a temporary one may be in memory.

    It stays if asked for, and after a failure, whose reason is in its logs.
    """
    parent = _ROOT / "build" / "bench"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    succeeded = False
    try:
        yield folder
        succeeded = True
    finally:
        if keep or not succeeded:
            _say(f"data and logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _say(phrase: str) -> None:
    sys.stderr.write(f"bench: {phrase}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
