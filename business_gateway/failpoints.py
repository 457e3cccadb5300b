"""The failpoints of a gateway: each durable step of the chain, before and after it.

Those of the command outbox come with its pump; the callback side declares its own.
"""

from typing import Final

GATEWAY_FAILPOINTS: Final = frozenset(
    {
        "artifact.allocate.after",
        "artifact.allocate.before",
        "artifact.commit.after",
        "artifact.commit.before",
        "asset.ready.after",
        "asset.ready.before",
        "order.accept.after",
        "order.accept.before",
        "order.cancel.after",
        "order.cancel.before",
        "order.rerun.after",
        "order.rerun.before",
    }
)
