"""Virtual time: an event heap, and processes that stall, die and start again."""

import heapq
import itertools
from collections.abc import Callable

Action = Callable[[], object]


class Kernel:
    """Runs actions in the order of their virtual times; equal times in the order of asking."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.event_count = 0
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Action]] = []

    def at(self, time_s: float, action: Action) -> None:
        heapq.heappush(self._heap, (max(time_s, self.now_s), next(self._order), action))

    def after(self, delay_s: float, action: Action) -> None:
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float, is_done: Callable[[], bool]) -> None:
        while self._heap and self._heap[0][0] <= until_s and not is_done():
            self.now_s, _, action = heapq.heappop(self._heap)
            self.event_count += 1
            action()


class Process:
    """Something that handles one action at a time, none while stalled, none of an earlier life."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.is_alive = True
        self.life = 0
        self.stalls = 0
        self._backlog: list[tuple[int, Action]] = []

    @property
    def is_stalled(self) -> bool:
        return self.stalls > 0

    def deliver(self, life: int, action: Action) -> None:
        if not self.is_alive or life != self.life:
            return
        if self.is_stalled:
            self._backlog.append((life, action))
        else:
            action()

    def after(self, delay_s: float, action: Action) -> None:
        life = self.life
        self.kernel.after(delay_s, lambda: self.deliver(life, action))

    def every(self, interval_s: float, action: Action) -> None:
        def again() -> None:
            action()
            self.after(interval_s, again)

        self.after(interval_s, again)

    def stall(self, duration_s: float) -> None:
        if not self.is_alive:
            return
        self.stalls += 1
        life = self.life
        self.on_stall()
        self.kernel.after(duration_s, lambda: self._resume(life))

    def start(self) -> None:
        """Begin a life."""

    def die(self) -> None:
        self.is_alive = False
        self.life += 1
        self.stalls = 0
        self._backlog.clear()

    def on_stall(self) -> None:
        """Note that the process stands still from now on."""

    def on_resume(self) -> None:
        """Do what comes before everything that has piled up."""

    def _resume(self, life: int) -> None:
        if life != self.life or not self.is_alive:
            return
        self.stalls -= 1
        if self.is_stalled:
            return
        self.on_resume()
        backlog, self._backlog = self._backlog, []
        for queued_life, action in backlog:
            self.deliver(queued_life, action)
