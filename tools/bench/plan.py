"""What one run of the benchmark measures, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.dev_stack.platform_profiles import Profile

PRODUCTION: Final = Profile(name="bench", control_plane={})
"""No figure is overridden: leases, heartbeats and sweeps as in production, every commit synced."""

WORKFLOW_FILE: Final = Path(__file__).with_name("two_steps.yaml")
WORKFLOW_NAME: Final = "bench-two-steps"


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """Sizes of the phases.

    `samples` executions run one at a time for the latencies, then `executions` are submitted with
    `concurrency` calls in flight over `channels` connections, then nothing happens for `idle_s`.
    `floor_s` is the length of each measurement of the database alone. Before all of it, `history`
    finished executions are put into the tables.
    """

    data_folder: Path
    executions: int = 1_000
    concurrency: int = 64
    channels: int = 4
    samples: int = 200
    warm_up: int = 50
    idle_s: float = 60.0
    floor_s: float = 4.0
    timeout_s: float = 600.0
    history: int = 0
