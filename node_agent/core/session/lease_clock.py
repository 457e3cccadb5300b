"""The node's own deadlines: until when each attempt may run, by a monotonic clock alone.

The server gives a lease away one TTL after it *handled* a heartbeat; the node counts from the
moment at which it *sent* that heartbeat and stops TTL/6 early, so that neither delays nor a clock
that runs 9% slow nor the time that stopping takes (TTL/12) let two nodes run one step.

Times are seconds of one clock that also counts while the machine sleeps: CLOCK_BOOTTIME on
Linux, for CLOCK_MONOTONIC stands still in a suspended machine whose leases run on.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

AttemptId = NewType("AttemptId", str)
LeaseVersion = NewType("LeaseVersion", int)
SessionNumber = NewType("SessionNumber", int)
"""Counts the sessions that this process opened; not the server's generation."""

HELLO_NUMBER = 0
"""Hello counts as the heartbeat number 0 of its session."""
SENT_HEARTBEATS_MAX = 64
"""Sending times kept per session; those older than the TTL go first, whatever their number."""


class Standing(StrEnum):
    """Whether an attempt may run."""

    RUNNABLE = "RUNNABLE"
    """Its deadline lies ahead."""
    WAITING = "WAITING"
    """It has no deadline, or is past it: it must not run until KEEP or a renewal."""
    UNKNOWN = "UNKNOWN"
    """Not held, or under another lease version: whatever named it is ignored."""


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease as heartbeats and Hello list it."""

    attempt_id: AttemptId
    lease_version: LeaseVersion


@dataclass(slots=True)
class _Lease:
    """One held lease; without a deadline it waits."""

    lease_version: LeaseVersion
    deadline_s: float | None = None


@dataclass(slots=True)
class _Session:
    """The sending times of the session's heartbeats that can still be answered."""

    number: SessionNumber
    lease_ttl_s: float | None
    sent_at_s: OrderedDict[int, float] = field(default_factory=OrderedDict)
    answered_sent_at_s: float = 0.0


class LeaseClock:
    """Keeps the deadline of every attempt that this process holds.

    The agent calls ``expired`` before it does anything else after each wait, and stops what it
    returns; a stopped attempt stays held and listed, and may go on once it is RUNNABLE again.
    """

    def __init__(self) -> None:
        """Hold nothing, in no session."""
        self._leases: dict[AttemptId, _Lease] = {}
        self._session = _Session(SessionNumber(0), None)

    # --- The session. ---

    def hello_sent(self, at_s: float) -> SessionNumber:
        """Open a session whose Hello is sent now; answers of earlier sessions no longer count.

        ``at_s`` must be read before Hello is handed to the transport.
        """
        self._session = _Session(SessionNumber(self._session.number + 1), None)
        self._session.sent_at_s[HELLO_NUMBER] = at_s
        self._session.answered_sent_at_s = at_s
        return self._session.number

    def welcomed(self, session: SessionNumber, lease_ttl_s: float) -> None:
        """Take the lease TTL that Welcome names; until then nothing can be renewed.

        Raises:
            ValueError: the TTL is not above 0.
        """
        if not lease_ttl_s > 0:
            message = f"Welcome names a lease TTL of {lease_ttl_s} s; it must be above 0"
            raise ValueError(message)
        if session == self._session.number:
            self._session.lease_ttl_s = lease_ttl_s

    def heartbeat_sent(self, session: SessionNumber, number: int, at_s: float) -> None:
        """Remember when a heartbeat was sent; ``at_s`` is read before it is handed over.

        Raises:
            ValueError: the number does not follow the session's earlier ones.
        """
        if session != self._session.number:
            return
        sent_at_s = self._session.sent_at_s
        if sent_at_s and number <= next(reversed(sent_at_s)):
            message = (
                f"heartbeat {number} was sent after {next(reversed(sent_at_s))};"
                " number the heartbeats of a session upwards from 1"
            )
            raise ValueError(message)
        sent_at_s[number] = at_s
        self._forget_unanswerable(at_s)

    def heartbeat_answered(self, session: SessionNumber, number: int) -> None:
        """Note that the server answered a heartbeat, whatever it renewed."""
        sent_at_s = self._sent_at_s(session, number)
        if sent_at_s is not None:
            self._session.answered_sent_at_s = max(self._session.answered_sent_at_s, sent_at_s)

    def answer_overdue_at_s(self) -> float | None:
        """Return when the session counts as silent (TTL/3 after the newest answered heartbeat).

        None before Welcome: waiting for that has its own time-out. Past it the agent leaves the
        session and opens one with another replica, while there is lease time left to do so.
        """
        if self._session.lease_ttl_s is None:
            return None
        return self._session.answered_sent_at_s + self._session.lease_ttl_s / 3

    # --- What the server says of leases. ---

    def run_received(
        self,
        attempt_id: AttemptId,
        lease_version: LeaseVersion,
        remaining_s: float,
        session: SessionNumber,
        last_heartbeat_number: int,
    ) -> Standing:
        """Hold the lease of a RUN, and set its first deadline.

        The server read ``remaining_s`` after it had got that heartbeat, so the lease ends at least
        ``remaining_s`` after the heartbeat's sending; TTL/6 of that is the margin.
        """
        lease = self._leases.setdefault(attempt_id, _Lease(lease_version))
        if lease.lease_version != lease_version:
            return Standing.UNKNOWN
        self._extend(lease, self._first_deadline_s(remaining_s, session, last_heartbeat_number))
        return self._standing(lease)

    def recovered(self, attempt_id: AttemptId, lease_version: LeaseVersion) -> None:
        """Hold an attempt that the journal knows from before this process; it waits for KEEP."""
        self._leases[attempt_id] = _Lease(lease_version)

    def kept(
        self, attempt_id: AttemptId, lease_version: LeaseVersion, session: SessionNumber
    ) -> Standing:
        """Take Welcome's KEEP (or CANCEL), which renewed the lease; Hello is its heartbeat."""
        return self.renewed(attempt_id, lease_version, session, HELLO_NUMBER)

    def renewed(
        self,
        attempt_id: AttemptId,
        lease_version: LeaseVersion,
        session: SessionNumber,
        heartbeat_number: int,
    ) -> Standing:
        """Take a renewal: the deadline is that heartbeat's sending + 5/6 TTL, if that is later."""
        lease = self._leases.get(attempt_id)
        if lease is None or lease.lease_version != lease_version:
            return Standing.UNKNOWN
        self._extend(lease, self._renewed_deadline_s(session, heartbeat_number))
        return self._standing(lease)

    def lost(self, attempt_id: AttemptId, lease_version: LeaseVersion) -> bool:
        """Drop a lease that the server named lost; True if it was held and must be stopped."""
        lease = self._leases.get(attempt_id)
        if lease is None or lease.lease_version != lease_version:
            return False
        del self._leases[attempt_id]
        return True

    def released(self, attempt_id: AttemptId) -> None:
        """Drop an attempt that is over: its final event is acked, or Welcome said FORGET."""
        self._leases.pop(attempt_id, None)

    # --- What the agent asks. ---

    def held(self) -> tuple[HeldLease, ...]:
        """Return every lease to list in Hello and heartbeats, waiting ones included."""
        return tuple(HeldLease(key, lease.lease_version) for key, lease in self._leases.items())

    def may_run(self, attempt_id: AttemptId, now_s: float) -> bool:
        """Say whether an attempt may be started, resumed or go on at this moment."""
        lease = self._leases.get(attempt_id)
        return lease is not None and lease.deadline_s is not None and now_s < lease.deadline_s

    def expired(self, now_s: float) -> tuple[AttemptId, ...]:
        """Return the attempts whose deadline has come, once each; they now wait for a renewal."""
        due = tuple(
            key
            for key, lease in self._leases.items()
            if lease.deadline_s is not None and lease.deadline_s <= now_s
        )
        for attempt_id in due:
            self._leases[attempt_id].deadline_s = None
        return due

    def next_deadline_s(self) -> float | None:
        """Return the earliest deadline, None if none is set."""
        return min(
            (lease.deadline_s for lease in self._leases.values() if lease.deadline_s is not None),
            default=None,
        )

    # --- Inside. ---

    def _first_deadline_s(
        self, remaining_s: float, session: SessionNumber, heartbeat_number: int
    ) -> float | None:
        """Return a RUN's deadline, None where the lease is too short to begin on."""
        sent_at_s = self._sent_at_s(session, heartbeat_number)
        lease_ttl_s = self._session.lease_ttl_s
        if sent_at_s is None or lease_ttl_s is None or remaining_s <= lease_ttl_s / 6:
            return None
        return sent_at_s + remaining_s - lease_ttl_s / 6

    def _renewed_deadline_s(self, session: SessionNumber, heartbeat_number: int) -> float | None:
        """Return the deadline that a renewal answering this heartbeat gives."""
        sent_at_s = self._sent_at_s(session, heartbeat_number)
        lease_ttl_s = self._session.lease_ttl_s
        if sent_at_s is None or lease_ttl_s is None:
            return None
        return sent_at_s + lease_ttl_s * 5 / 6

    def _sent_at_s(self, session: SessionNumber, number: int) -> float | None:
        """Return when a heartbeat of the present session was sent, None if that is unknown."""
        if session != self._session.number:
            return None
        return self._session.sent_at_s.get(number)

    def _forget_unanswerable(self, now_s: float) -> None:
        """Drop sending times that could give no deadline ahead, and what is over the bound."""
        lease_ttl_s = self._session.lease_ttl_s
        sent_at_s = self._session.sent_at_s
        while len(sent_at_s) > 1:
            oldest_s = next(iter(sent_at_s.values()))
            too_old = lease_ttl_s is not None and now_s - oldest_s >= lease_ttl_s
            if not too_old and len(sent_at_s) <= SENT_HEARTBEATS_MAX:
                return
            sent_at_s.popitem(last=False)

    @staticmethod
    def _extend(lease: _Lease, deadline_s: float | None) -> None:
        """Move a deadline forward, never back: both are safe, and the later is the truer."""
        if deadline_s is not None and (lease.deadline_s is None or deadline_s > lease.deadline_s):
            lease.deadline_s = deadline_s

    @staticmethod
    def _standing(lease: _Lease) -> Standing:
        """Return whether a held lease has a deadline; ``expired`` removes those that passed."""
        return Standing.WAITING if lease.deadline_s is None else Standing.RUNNABLE
