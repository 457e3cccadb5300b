"""CPU time of processes with all their descendants, also of those that ended meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil

from foundation.clock import Clock


@dataclass(frozen=True, slots=True)
class CpuUse:
    """What was used between two readings: CPU seconds by name, and wall seconds.

    `machine_s` are the CPU seconds of the whole machine, everybody's together.
    """

    wall_s: float
    cpu_s: Mapping[str, float]
    machine_s: float = 0.0

    @property
    def total_s(self) -> float:
        """CPU seconds of all together."""
        return sum(self.cpu_s.values())

    @property
    def others_cores(self) -> float:
        """How many cores were busy with work that is not ours, on average."""
        return max(0.0, self.machine_s - self.total_s) / self.wall_s

    def per_item_ms(self, items: int) -> dict[str, float]:
        """CPU milliseconds by name for each of `items` pieces of work."""
        return {name: 1_000 * seconds / items for name, seconds in self.cpu_s.items()}

    def percent_of_core(self) -> dict[str, float]:
        """Share of one core by name, in percent."""
        return {name: 100 * seconds / self.wall_s for name, seconds in self.cpu_s.items()}


class CpuMeter:
    """Measures a block: `with CpuMeter(roots, clock) as meter: …`, then `meter.use`."""

    def __init__(
        self, roots: Mapping[str, int], clock: Clock, *, alone: Collection[str] = ()
    ) -> None:
        """Take the process id of each tree by the name it is reported under.

        Those named in `alone` are counted without their descendants.
        """
        self._roots = {name: psutil.Process(pid) for name, pid in roots.items()}
        self._alone = alone
        self._clock = clock
        self.use = CpuUse(0.0, {})

    def __enter__(self) -> Self:
        """Take the first reading."""
        self._began_s = self._clock.monotonic()
        self._machine_began_s = machine_cpu_s()
        self._before = self._read()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the second reading, also when the block failed."""
        after = self._read()
        cpu_s = {name: after[name] - before for name, before in self._before.items()}
        machine_s = machine_cpu_s() - self._machine_began_s
        self.use = CpuUse(self._clock.monotonic() - self._began_s, cpu_s, machine_s)

    def _read(self) -> dict[str, float]:
        return {
            name: own_cpu_s(root) if name in self._alone else tree_cpu_s(root)
            for name, root in self._roots.items()
        }


def machine_cpu_s() -> float:
    """Seconds that the machine's cores have worked since its start."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def tree_cpu_s(root: psutil.Process) -> float:
    """User and system seconds of a tree; those of an ended child are counted by its parent."""
    return sum(_with_ended_children_s(one) for one in (root, *root.children(recursive=True)))


def own_cpu_s(process: psutil.Process) -> float:
    """User and system seconds of one process, without any child."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _with_ended_children_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0
