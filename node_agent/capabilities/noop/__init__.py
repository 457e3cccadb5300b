"""The capability noop: answers its input at once, to try a stack and to measure one."""

from node_agent.capabilities.noop.capability import noop as capability

__all__ = ["capability"]
