"""The failpoints of a control plane: each durable step of the chain, before and after it."""

from typing import Final

CONTROL_PLANE_FAILPOINTS: Final = frozenset(
    {
        "accept.commit.after",
        "accept.commit.before",
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
        "session.open.after",
        "session.open.before",
        "attempt.stop.after",
        "attempt.stop.before",
        "command.ack.after",
        "command.ack.before",
        "accept.reply.before",
    }
)
