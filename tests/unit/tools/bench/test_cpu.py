"""CPU time of trees of real processes."""

from __future__ import annotations

import os
import subprocess
import sys

from foundation.clock import ManualClock
from tools.bench.cpu import CpuMeter, CpuUse

BURN_S = 0.2
BURN = f"""
import sys, time
while time.process_time() < {BURN_S}: pass
"""
PARENT = f"""
import subprocess, sys
sys.stdin.readline()
subprocess.run([sys.executable, "-c", {BURN!r}], check=True)
print("done", flush=True)
sys.stdin.readline()
"""


def test_an_ended_child_counts_for_its_parent() -> None:
    """What a child used is not lost when it ended before the second reading."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        with CpuMeter({"parent": parent.pid}, ManualClock()) as meter:
            parent.stdin.write("go\n")
            parent.stdin.flush()
            assert parent.stdout.readline() == "done\n"
        parent.stdin.write("end\n")
    assert meter.use.cpu_s["parent"] >= BURN_S


def test_alone_leaves_the_children_out() -> None:
    """A process that is measured alone is not charged for its children."""
    roots = {"alone": os.getpid(), "together": os.getpid()}
    with CpuMeter(roots, ManualClock(), alone=("alone",)) as meter:
        subprocess.run([sys.executable, "-c", BURN], check=True)
    assert meter.use.cpu_s["together"] >= BURN_S
    assert meter.use.cpu_s["alone"] < meter.use.cpu_s["together"]


def test_use_is_shared_out() -> None:
    """Milliseconds for each item, and percent of a core over the time that passed."""
    use = CpuUse(wall_s=10, cpu_s={"a": 1.0, "b": 0.5}, machine_s=6.5)
    assert use.total_s == 1.5
    assert use.per_item_ms(100) == {"a": 10, "b": 5}
    assert use.percent_of_core() == {"a": 10, "b": 5}
    assert use.others_cores == 0.5
