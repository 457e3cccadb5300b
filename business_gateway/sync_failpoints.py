"""The failpoints of the half that talks with the platform: commands out, news in."""

from typing import Final

from business_gateway.command_policy import COMMAND_OUTBOX

_PUMP_STAGES: Final = ("claim", "publish", "mark")

SYNC_FAILPOINTS: Final = frozenset(
    {
        *(
            f"{COMMAND_OUTBOX}.{stage}.{side}"
            for stage in _PUMP_STAGES
            for side in ("before", "after")
        ),
        "gateway.cancel.after",
        "gateway.cancel.before",
        "gateway.callback.commit.after",
        "gateway.callback.commit.before",
        "gateway.callback.reply.before",
        "gateway.compensate.query.after",
        "gateway.compensate.query.before",
        "gateway.compensate.take.after",
        "gateway.compensate.take.before",
        "gateway.rerun.after",
        "gateway.rerun.before",
        "gateway.submit.after",
        "gateway.submit.before",
    }
)
