"""Whether an outbox's single internal destination answers, and when to probe it again."""


class Reachability:
    """Open while the destination answers; once it does not, one probe per interval.

    All moments are monotonic seconds that the caller reads.
    """

    __slots__ = ("_next_probe_at_s", "_probe_interval_s")

    def __init__(self, probe_interval_s: float) -> None:
        """Start in the belief that the destination answers."""
        self._probe_interval_s = probe_interval_s
        self._next_probe_at_s: float | None = None

    @property
    def lost(self) -> bool:
        """Whether the destination did not answer last time."""
        return self._next_probe_at_s is not None

    def wait_s(self, now_s: float) -> float:
        """Seconds until something may be claimed; 0 when now."""
        return 0.0 if self._next_probe_at_s is None else max(0.0, self._next_probe_at_s - now_s)

    def rows_max(self, now_s: float) -> int | None:
        """Rows that may be claimed now: None for no limit, 1 for a probe, 0 before its time."""
        if not self.lost:
            return None
        return 0 if self.wait_s(now_s) > 0 else 1

    def probing(self, now_s: float) -> None:
        """A probe leaves now; the next one waits for the interval."""
        if self.lost:
            self._next_probe_at_s = now_s + self._probe_interval_s

    def note_lost(self, now_s: float) -> None:
        """The destination did not answer."""
        self._next_probe_at_s = now_s + self._probe_interval_s

    def note_answer(self) -> bool:
        """The destination answered; return whether it was lost before."""
        was_lost = self.lost
        self._next_probe_at_s = None
        return was_lost
