"""What waits to be written to the stream, folded: acks and credits are sums, progress is newest."""

from collections import deque
from collections.abc import Callable, Sequence

from foundation.wakeup import Wakeup
from node_agent.core.journal.events import NodeEvent
from node_agent.core.session.lease_clock import AttemptId, HeldLease
from node_agent.core.session.messages import (
    AttemptProgress,
    CommandAck,
    EventBatch,
    JobCredit,
    ProgressReport,
    Up,
)


class Mailbox:
    """One for the process; each session begins with an empty one."""

    def __init__(self, monotonic_s: Callable[[], float], progress_interval_s: float) -> None:
        """Progress of an attempt leaves at most once in `progress_interval_s`."""
        self.wakeup = Wakeup()
        self._monotonic_s = monotonic_s
        self._progress_interval_s = progress_interval_s
        self._heartbeat_wanted = False
        self._ack_sequence = 0
        self._refused_ids: list[str] = []
        self._credit_count = 0
        self._events: deque[Sequence[NodeEvent]] = deque()
        self._progress: dict[AttemptId, AttemptProgress] = {}
        self._progress_sent_at_s: dict[AttemptId, float] = {}

    def begin_session(self) -> None:
        """Drop what a Hello of this moment says by itself, and events: their sender repeats them.

        Progress stays, for it is true in any session.
        """
        self._heartbeat_wanted = False
        self._ack_sequence = 0
        self._refused_ids = []
        self._credit_count = 0
        self._events.clear()

    # --- What is put in. ---

    def want_heartbeat(self) -> None:
        """Have a heartbeat leave at once: something in it has changed."""
        self._heartbeat_wanted = True
        self.wakeup.set()

    def ack(self, sequence: int, refused_command_ids: Sequence[str] = ()) -> None:
        """Acknowledge all commands up to a sequence."""
        self._ack_sequence = max(self._ack_sequence, sequence)
        self._refused_ids.extend(refused_command_ids)
        self.wakeup.set()

    def credit(self, credit_count: int) -> None:
        """Let more RUN commands come."""
        self._credit_count += credit_count
        self.wakeup.set()

    def send_events(self, events: Sequence[NodeEvent]) -> None:
        """Send events, after those put in before."""
        self._events.append(events)
        self.wakeup.set()

    def report_progress(self, lease: HeldLease, percent: int, message: str) -> None:
        """Replace what is to be told of an attempt's progress, unless it would go back."""
        before = self._progress.get(lease.attempt_id)
        if before is None or before.percent <= percent:
            self._progress[lease.attempt_id] = AttemptProgress(lease, percent, message)
        if before is None:
            self.wakeup.set()

    def forget_progress(self, attempt_id: AttemptId) -> None:
        """Say nothing more of an attempt that is over."""
        self._progress.pop(attempt_id, None)
        self._progress_sent_at_s.pop(attempt_id, None)

    # --- What is taken out, by the writer. ---

    def take_heartbeat_wish(self) -> bool:
        """Whether a heartbeat was wanted since the last call."""
        wanted, self._heartbeat_wanted = self._heartbeat_wanted, False
        return wanted

    def take(self) -> list[Up]:
        """Take everything that may leave now, in the order in which it should."""
        messages: list[Up] = []
        if self._ack_sequence:
            messages.append(CommandAck(self._ack_sequence, tuple(self._refused_ids)))
            self._ack_sequence, self._refused_ids = 0, []
        if self._credit_count:
            messages.append(JobCredit(self._credit_count))
            self._credit_count = 0
        messages.extend(EventBatch(events) for events in self._events)
        self._events.clear()
        due = self._take_progress()
        if due:
            messages.append(ProgressReport(due))
        return messages

    def next_progress_in_s(self) -> float | None:
        """Seconds until some progress may leave; None where none waits."""
        now_s = self._monotonic_s()
        return min(
            (max(self._progress_due_at_s(one) - now_s, 0.0) for one in self._progress),
            default=None,
        )

    def _take_progress(self) -> list[AttemptProgress]:
        now_s = self._monotonic_s()
        due = [key for key in self._progress if self._progress_due_at_s(key) <= now_s]
        for key in due:
            self._progress_sent_at_s[key] = now_s
        return [self._progress.pop(key) for key in due]

    def _progress_due_at_s(self, attempt_id: AttemptId) -> float:
        sent_at_s = self._progress_sent_at_s.get(attempt_id)
        return 0.0 if sent_at_s is None else sent_at_s + self._progress_interval_s
