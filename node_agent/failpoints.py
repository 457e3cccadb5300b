"""The failpoints of an agent: each durable step of its part of the chain, before and after it."""

from typing import Final

from node_agent.limits import node_events_policy

AGENT_FAILPOINTS: Final = frozenset(
    {
        "agent.ack.after",
        "agent.ack.before",
        "agent.artifacts.after",
        "agent.artifacts.before",
        "agent.checkpoint.after",
        "agent.checkpoint.before",
        "agent.enrol.after",
        "agent.enrol.before",
        "agent.hello.before",
        "agent.inbox.after",
        "agent.inbox.before",
        "agent.result.after",
        "agent.result.before",
        "agent.send.after",
        "agent.send.before",
        "agent.start.after",
        "agent.start.before",
        *node_events_policy().failpoints,
    }
)
