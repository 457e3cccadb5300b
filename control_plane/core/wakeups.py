"""Hints between the loops of one replica: that there is work, and where. Facts decide, never hints.

A hint is given after the commit that it announces, and consumed before the query that looks.
A hint that is lost costs time, never work: every loop also looks at its next due time.
"""

from collections.abc import Iterable

from foundation.wakeup import Wakeup


class IdHints:
    """A wake-up that carries ids: many hints for one id before it is taken count as one."""

    __slots__ = ("_ids", "_wakeup")

    def __init__(self) -> None:
        """Start with nothing hinted."""
        self._ids: dict[str, None] = {}
        self._wakeup = Wakeup()

    @property
    def wakeup(self) -> Wakeup:
        """The flag behind the hints, for a loop that waits for it and then takes."""
        return self._wakeup

    def add(self, ids: Iterable[str]) -> None:
        """Hint these ids; the order of first mention is kept."""
        before = len(self._ids)
        for one in ids:
            self._ids[one] = None
        if len(self._ids) > before:
            self._wakeup.set()

    def wake(self) -> None:
        """Wake the waiter without naming an id."""
        self._wakeup.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a hint; True on one, False after `timeout_s` seconds (None: no limit)."""
        if self._ids:
            self._wakeup.set()
        return await self._wakeup.wait(timeout_s)

    def take(self, count_max: int) -> list[str]:
        """Take the oldest ids, at most `count_max`; those left keep the waiter awake."""
        taken = list(self._ids)[:count_max]
        for one in taken:
            del self._ids[one]
        return taken


class LocalHints:
    """Every hint of one replica; each attribute names who waits for it.

    engine: execution ids to advance. scheduler: new requests or freed capacity (ids are not
    needed, the loop claims what is due). outbox, callbacks, artifact_commits: rows were
    written. nodes: node ids with new commands. watchers: execution ids whose events grew.
    schedules: one is due sooner than was known.
    """

    __slots__ = (
        "artifact_commits",
        "callbacks",
        "capacity",
        "engine",
        "nodes",
        "outbox",
        "scheduler",
        "schedules",
        "watchers",
    )

    def __init__(self) -> None:
        """Start with nothing hinted."""
        self.engine = IdHints()
        self.scheduler = Wakeup()
        self.capacity = Wakeup()
        self.outbox = Wakeup()
        self.callbacks = Wakeup()
        self.artifact_commits = Wakeup()
        self.schedules = Wakeup()
        self.nodes = IdHints()
        self.watchers = IdHints()

    def requests_ready(self) -> None:
        """New scheduling requests are due."""
        self.scheduler.set()

    def capacity_freed(self) -> None:
        """A node joined, freed a slot or changed what it offers: parked requests may fit now."""
        self.capacity.set()
        self.scheduler.set()

    def events_written(self, execution_ids: Iterable[str]) -> None:
        """Execution events were committed: publish them, deliver them, tell the watchers."""
        self.outbox.set()
        self.callbacks.set()
        self.watchers.add(execution_ids)
