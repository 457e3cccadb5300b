"""How many children there are, and what each may cost."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from node_agent.adapters.outbound.transfers import TransferConfig


@dataclass(frozen=True, slots=True)
class ProcessHostConfig:
    """Bounds of the host.

    `stop_grace_s` is what work that shall stop gets before it is killed. Memory is looked at
    every `watch_interval_s`; `memory_bytes_max` holds where an order names no limit. A child
    is replaced after `attempts_per_child_max` attempts, or when it keeps more than
    `idle_memory_bytes_max` between two. `environment` is added to the little that children
    get: never the agent's own variables, which hold its credentials. `on_line` is given every
    line that they print, besides the agent's log.
    """

    slot_count: int = field(default_factory=lambda: os.cpu_count() or 1)
    start_timeout_s: float = 60.0
    stop_grace_s: float = 5.0
    watch_interval_s: float = 0.5
    memory_bytes_max: int = 2 * 1024**3
    idle_memory_bytes_max: int = 512 * 1024**2
    attempts_per_child_max: int = 200
    environment: Mapping[str, str] = field(default_factory=dict)
    on_line: Callable[[str], None] | None = None
    transfers: TransferConfig = field(default_factory=TransferConfig)

    def __post_init__(self) -> None:
        """Refuse a host that could run nothing."""
        if self.slot_count < 1:
            raise ValueError(f"slot_count is {self.slot_count}; it must be 1 or more")
