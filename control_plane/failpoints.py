"""The failpoints of a control plane: each durable step of the chain, before and after it."""

from random import Random
from typing import Final

from control_plane.policies import callback_policy, commit_policy, event_policy

_OWN: Final = frozenset(
    {
        "accept.commit.after",
        "accept.commit.before",
        "bulk.part.after",
        "bulk.part.before",
        "command.mark.after",
        "command.mark.before",
        "command.send.after",
        "command.send.before",
        "commit.settle.after",
        "commit.settle.before",
        "dispatch.commit.after",
        "dispatch.commit.before",
        "engine.commit.after",
        "engine.commit.before",
        "enrol.commit.after",
        "enrol.commit.before",
        "intake.commit.after",
        "intake.commit.before",
        "lease.expire.after",
        "lease.expire.before",
        "lease.renew.after",
        "lease.renew.before",
        "node.manage.after",
        "node.manage.before",
        "node.remove.after",
        "node.remove.before",
        "schedule.claim.after",
        "schedule.plan.after",
        "schedule.plan.before",
        "schedule.settle.after",
        "schedule.settle.before",
        "session.open.after",
        "session.open.before",
        "attempt.stop.after",
        "attempt.stop.before",
        "command.ack.after",
        "command.ack.before",
        "accept.reply.before",
    }
)
_PUMPS: Final = (
    event_policy(60.0, 60.0),
    callback_policy(60.0, 60.0, Random()),  # noqa: S311 - only its name is used
    commit_policy(60.0, 60.0),
)

CONTROL_PLANE_FAILPOINTS: Final = _OWN.union(*(policy.failpoints for policy in _PUMPS))
