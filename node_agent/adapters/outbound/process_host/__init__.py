"""The process host: capabilities in warm child processes, each bounded, watched and replaceable."""

from node_agent.adapters.outbound.process_host.child_handle import ChildStartError
from node_agent.adapters.outbound.process_host.config import ProcessHostConfig
from node_agent.adapters.outbound.process_host.host import ProcessHost

__all__ = ["ChildStartError", "ProcessHost", "ProcessHostConfig"]
