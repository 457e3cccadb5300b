"""The lease guard: one shared row that shows whether leases could be renewed, and its hold."""

from dataclasses import dataclass

from control_plane.core.nodes.leases.figures import LeaseFigures
from control_plane.core.nodes.leases.terms import DatabaseSeconds


@dataclass(frozen=True, slots=True)
class LeaseGuard:
    """The one row of ``lease_guard``: when ticks last worked, and until when nothing expires."""

    stamped_at_s: DatabaseSeconds
    hold_until_s: DatabaseSeconds


def stamp_is_due(
    guard: LeaseGuard, now_s: DatabaseSeconds, figures: LeaseFigures, *, leases_live: bool
) -> bool:
    """Say whether a tick stamps, and has to run for that alone where no heartbeat came.

    SQL: ``EXISTS (SELECT FROM attempts WHERE lease_expires_at IS NOT NULL)``
    ``AND abs(now - stamped_at) >= :ttl / 12``
    """
    return leases_live and abs(now_s - guard.stamped_at_s) >= figures.stamp_interval_s


def is_stalled(guard: LeaseGuard, now_s: DatabaseSeconds, figures: LeaseFigures) -> bool:
    """Say whether the server's side could not renew for so long that leases may have suffered.

    A stamp from the future means that the database's clock went back, which is judged alike.

    SQL: ``now - stamped_at > :ttl / 2 OR stamped_at - now > :ttl / 12``
    """
    age_s = now_s - guard.stamped_at_s
    return age_s > figures.stall_after_s or -age_s > figures.stamp_interval_s


def judge_guard(guard: LeaseGuard, now_s: DatabaseSeconds, figures: LeaseFigures) -> LeaseGuard:
    """Return the row as a tick, a sweep or a Hello must leave it before it judges a lease.

    Only a tick stamps, since only a tick shows that renewing works. A plain read is enough; the
    row is written only where it changes, and only if its lock is free (``FOR UPDATE SKIP LOCKED``):
    waiting for it would let one slow commit delay every tick. Who cannot write acts upon the
    judged row all the same. A hold is never longer than
    one TTL from now; a longer one was set by a clock that has gone back since.

    SQL: ``UPDATE lease_guard SET hold_until = CASE WHEN`` *stalled* ``THEN now + :ttl``
    ``ELSE least(hold_until, now + :ttl) END`` (a tick adds ``, stamped_at = now``)
    """
    hold_end_s = DatabaseSeconds(now_s + figures.hold_s)
    if is_stalled(guard, now_s, figures):
        return LeaseGuard(guard.stamped_at_s, hold_end_s)
    return LeaseGuard(guard.stamped_at_s, min(guard.hold_until_s, hold_end_s))


def stamp_guard(
    guard: LeaseGuard,
    now_s: DatabaseSeconds,
    figures: LeaseFigures,
    *,
    starved: bool,
) -> LeaseGuard:
    """Return the row as a tick leaves it: judged, stamped, and held if a lease was starved.

    Args:
        guard: the row as locked.
        now_s: the database's clock.
        figures: the shared times.
        starved: whether ``is_starved`` holds for a row that this tick had to skip. Another
            replica's stamp cannot show that, so the tick that sees it sets the hold itself.

    Written where ``stamp_is_due``, ``starved`` or the judging asks for it, if the lock is free.

    SQL: as ``judge_guard`` with ``stamped_at = now`` and *stalled* ``OR :starved``
    """
    judged = judge_guard(guard, now_s, figures)
    hold_until_s = DatabaseSeconds(now_s + figures.hold_s) if starved else judged.hold_until_s
    return LeaseGuard(now_s, hold_until_s)
