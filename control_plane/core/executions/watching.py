"""WatchExecution: every event after a sequence, in order, until the terminal one."""

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Final

from control_plane.core.executions.execution_state import EXECUTION_MACHINE, ExecutionStatus
from control_plane.core.executions.queries import ExecutionQueries
from control_plane.core.executions.views import EventView, ExecutionView
from control_plane.core.wakeups import IdHints
from foundation.errors import OutOfRangeError
from foundation.principals import Principal
from foundation.wakeup import Wakeup

PAGE_SIZE: Final = 200
LOOK_INTERVAL_S: Final = 2.0
"""How often a watcher looks without a hint: the events may come from another replica."""
_HINTS_PER_TURN_MAX: Final = 10_000


class WatchHub:
    """Wakes the watchers of the executions whose events grew; a Service."""

    name = "watch-hub"

    def __init__(self, hints: IdHints) -> None:
        self._hints = hints
        self._watchers: defaultdict[str, set[Wakeup]] = defaultdict(set)
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether watchers are to end, so that their clients resume on another replica."""
        return self._stopping

    def join(self, execution_id: str) -> Wakeup:
        """Return a wake-up for one watcher; give it back with `leave`."""
        wakeup = Wakeup()
        self._watchers[execution_id].add(wakeup)
        return wakeup

    def leave(self, execution_id: str, wakeup: Wakeup) -> None:
        """End one watcher's interest."""
        watchers = self._watchers[execution_id]
        watchers.discard(wakeup)
        if not watchers:
            del self._watchers[execution_id]

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def run(self) -> None:
        """Pass hints on until stopped."""
        while not self._stopping:
            await self._hints.wait()
            for execution_id in self._hints.take(_HINTS_PER_TURN_MAX):
                for wakeup in self._watchers.get(execution_id, ()):
                    wakeup.set()

    async def stop(self) -> None:
        """Let every watcher look once more and end."""
        self._stopping = True
        self._hints.wake()
        for watchers in self._watchers.values():
            for wakeup in watchers:
                wakeup.set()


async def watch(
    hub: WatchHub, queries: ExecutionQueries, principal: Principal, execution_id: str, after: int
) -> AsyncIterator[tuple[EventView, ExecutionView]]:
    """Yield each event after a sequence with the execution as it then stands.

    Ends after the terminal event. ExecutionNotFoundError; OutOfRangeError for a sequence that
    the execution has not reached.
    """
    execution = await queries.execution(principal, execution_id)
    if not 0 <= after <= execution.last_sequence:
        raise OutOfRangeError(
            f"after_sequence is {after}: the execution's sequences are 1 to "
            f"{execution.last_sequence}, resume after the last one you saw"
        )
    wakeup = hub.join(execution.execution_id)
    try:
        while True:
            events = await queries.reader.events(execution.execution_id, after, PAGE_SIZE)
            if events:
                execution = await queries.execution(principal, execution.execution_id)
            for event in events:
                yield event, execution
                after = event.sequence
            if _is_over(execution, after) or (hub.stopping and not events):
                return
            if len(events) < PAGE_SIZE:
                await wakeup.wait(LOOK_INTERVAL_S)
    finally:
        hub.leave(execution.execution_id, wakeup)


def _is_over(execution: ExecutionView, seen: int) -> bool:
    terminal = EXECUTION_MACHINE.is_terminal(ExecutionStatus(execution.status))
    return terminal and seen >= execution.last_sequence
