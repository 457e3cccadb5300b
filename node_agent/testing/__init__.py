"""For tests of capabilities: one attempt in this process, without an agent or any server."""

from node_agent.testing.trial import RunCapability, Trial, run_capability, try_capability

__all__ = ["RunCapability", "Trial", "run_capability", "try_capability"]
