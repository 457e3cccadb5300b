"""Two sets of figures for a platform on one machine: `dev` for people, `test` for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Profile:
    """Variables that each kind of process gets, and whether the servers sync to disk."""

    name: str
    control_plane: Mapping[str, str]
    gateway: Mapping[str, str] = field(default_factory=dict)
    agent: Mapping[str, str] = field(default_factory=dict)
    durable: bool = True


# As in production, but short enough that a person who kills a process sees what follows.
DEV: Final = Profile(
    name="dev",
    control_plane={
        "TDP_CONTROL_LEASE_TTL_S": "15",
        "TDP_CONTROL_HEARTBEAT_INTERVAL_S": "2",
        "TDP_CONTROL_SCHEDULING_TTL_S": "6",
        "TDP_CONTROL_STOP_BUDGET_S": "1.25",
        "TDP_CONTROL_CLAIM_TTL_S": "10",
        "TDP_CONTROL_BACKOFF_CAP_S": "60",
    },
    gateway={
        "TDP_GATEWAY_CLAIM_TTL_S": "10",
        "TDP_GATEWAY_QUIET_ORDER_S": "20",
    },
    agent={
        "TDP_AGENT_DRAIN_GRACE_S": "3",
        "TDP_AGENT_STOP_GRACE_S": "2",
        "TDP_AGENT_FLUSH_S": "2",
        "TDP_AGENT_RECONNECT_BASE_S": "0.3",
        "TDP_AGENT_RECONNECT_CAP_S": "3",
    },
)
# The figures of the tests' rule of convergence: everything that waits, waits for seconds.
TEST: Final = Profile(
    name="test",
    control_plane={
        "TDP_CONTROL_LEASE_TTL_S": "3",
        "TDP_CONTROL_HEARTBEAT_INTERVAL_S": "0.5",
        "TDP_CONTROL_SCHEDULING_TTL_S": "1.5",
        "TDP_CONTROL_STOP_BUDGET_S": "0.25",
        "TDP_CONTROL_CLAIM_TTL_S": "2",
        "TDP_CONTROL_BACKOFF_CAP_S": "5",
        "TDP_CONTROL_SWEEP_INTERVAL_S": "1",
    },
    gateway={
        "TDP_GATEWAY_CLAIM_TTL_S": "2",
        "TDP_GATEWAY_BACKOFF_CAP_S": "5",
        "TDP_GATEWAY_QUIET_ORDER_S": "10",
        "TDP_GATEWAY_SWEEP_INTERVAL_S": "2",
    },
    agent={
        # Each slot keeps a warm child.
        "TDP_AGENT_SLOTS": "1",
        "TDP_AGENT_DRAIN_GRACE_S": "0.5",
        "TDP_AGENT_STOP_GRACE_S": "0.5",
        "TDP_AGENT_FLUSH_S": "1",
        "TDP_AGENT_RECONNECT_BASE_S": "0.1",
        "TDP_AGENT_RECONNECT_CAP_S": "1",
    },
    durable=False,
)
PROFILES: Final = {profile.name: profile for profile in (DEV, TEST)}
