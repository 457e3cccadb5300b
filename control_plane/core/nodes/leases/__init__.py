"""Pure lease rules of the control plane: renewal, expiry, stalls, node liveness, Welcome.

The SQL statements repeat these rules; each docstring gives the predicate to write. Three
facts make the rules safe, and ``docs/adr/0004-lease-rules.md`` argues them:

* ``attempts.lease_expires_at`` and the row ``lease_guard`` are the only authorities, and both
  are compared with the database's clock alone;
* a node counts from a moment *before* the server's, and stops ``margin_s`` early;
* everything that judges expiry (tick, sweep, Hello) first judges the lease guard.

In the SQL, ``now`` stands for the database's clock (``tdp_now()``) read in the statement
that reads ``lease_guard``, and ``:ttl`` for ``LeaseFigures.lease_ttl_s`` as an interval.
"""

from control_plane.core.nodes.leases.figures import PRODUCTION_FIGURES, TEST_FIGURES, LeaseFigures
from control_plane.core.nodes.leases.guard import (
    LeaseGuard,
    is_stalled,
    judge_guard,
    stamp_guard,
    stamp_is_due,
)
from control_plane.core.nodes.leases.lease import (
    LeaseFacts,
    ListedLease,
    RenewalOutcome,
    bounded_expiry_s,
    is_expired,
    is_starved,
    judge_renewal,
    lease_end_s,
    lease_matches,
    may_expire,
    renewal_is_due,
    renewed_until_s,
    run_remaining_s,
    session_is_current,
)
from control_plane.core.nodes.leases.liveness import (
    NodeRow,
    is_fresh,
    is_silent,
    node_is_live,
    node_row_is_stale,
)
from control_plane.core.nodes.leases.terms import (
    DatabaseSeconds,
    Generation,
    IncarnationId,
    LeaseVersion,
    NodeId,
    ReplicaId,
)
from control_plane.core.nodes.leases.welcome import (
    Verdict,
    WelcomePlan,
    is_new_incarnation,
    judge_held,
    may_lose_missing,
    plan_welcome,
)

__all__ = [
    "PRODUCTION_FIGURES",
    "TEST_FIGURES",
    "DatabaseSeconds",
    "Generation",
    "IncarnationId",
    "LeaseFacts",
    "LeaseFigures",
    "LeaseGuard",
    "LeaseVersion",
    "ListedLease",
    "NodeId",
    "NodeRow",
    "RenewalOutcome",
    "ReplicaId",
    "Verdict",
    "WelcomePlan",
    "bounded_expiry_s",
    "is_expired",
    "is_fresh",
    "is_new_incarnation",
    "is_silent",
    "is_stalled",
    "is_starved",
    "judge_guard",
    "judge_held",
    "judge_renewal",
    "lease_end_s",
    "lease_matches",
    "may_expire",
    "may_lose_missing",
    "node_is_live",
    "node_row_is_stale",
    "plan_welcome",
    "renewal_is_due",
    "renewed_until_s",
    "run_remaining_s",
    "session_is_current",
    "stamp_guard",
    "stamp_is_due",
]
