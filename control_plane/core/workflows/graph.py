"""The dependency graph of a definition: order, ancestors and cycles, without recursion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

Dependencies = Mapping[str, Sequence[str]]
"""For each step, in the order written, the steps that it waits for; all of them known."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph without cycles.

    `order` lists each step after all that it waits for, and else as written.
    """

    order: tuple[str, ...]
    _places: Mapping[str, int]
    _ancestors: Mapping[str, int]

    def is_ancestor(self, ancestor: str, step: str) -> bool:
        """Whether `step` waits for `ancestor`, directly or through others."""
        place = self._places.get(ancestor)
        return place is not None and bool(self._ancestors[step] >> place & 1)


def build_graph(dependencies: Dependencies) -> Graph:
    """Return the graph of dependencies that are known to hold no cycle."""
    order = tuple(_sorted(dependencies))
    places = {key: place for place, key in enumerate(order)}
    ancestors: dict[str, int] = {}
    for key in order:
        # One bit per step: 1,000 steps with many edges stay cheap.
        bits = 0
        for dependency in dependencies[key]:
            bits |= ancestors[dependency] | 1 << places[dependency]
        ancestors[key] = bits
    return Graph(order, places, ancestors)


def find_cycle(dependencies: Dependencies) -> tuple[str, ...]:
    """Return the steps on one cycle, each waiting for the next, or nothing when there is none."""
    stuck = set(dependencies) - set(_sorted(dependencies))
    if not stuck:
        return ()
    # Each stuck step waits for another stuck one, so following them must come round.
    path: list[str] = []
    seen: dict[str, int] = {}
    step = next(key for key in dependencies if key in stuck)
    while step not in seen:
        seen[step] = len(path)
        path.append(step)
        step = next(one for one in dependencies[step] if one in stuck)
    return tuple(path[seen[step] :])


def _sorted(dependencies: Dependencies) -> list[str]:
    """Order the steps so that each follows what it waits for; steps on cycles are left out."""
    keys = list(dependencies)
    places = {key: place for place, key in enumerate(keys)}
    missing = {key: len(waits_for) for key, waits_for in dependencies.items()}
    dependents: dict[str, list[str]] = {key: [] for key in keys}
    for key, waits_for in dependencies.items():
        for dependency in waits_for:
            dependents[dependency].append(key)
    ready = [places[key] for key in keys if missing[key] == 0]
    heapify(ready)
    order: list[str] = []
    while ready:
        key = keys[heappop(ready)]
        order.append(key)
        for dependent in dependents[key]:
            missing[dependent] -= 1
            if missing[dependent] == 0:
                heappush(ready, places[dependent])
    return order
