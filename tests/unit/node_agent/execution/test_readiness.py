"""Why no new work is taken, and which reason is told first."""

from dataclasses import dataclass

from node_agent.core.execution.readiness import AgentReadiness
from node_agent.core.journal.domain import DrainMark
from node_agent.core.session.messages import Readiness


@dataclass
class Disk:
    disk_is_full: bool = False
    free_bytes: int = 100


def test_each_reason_is_told_and_the_weightiest_first() -> None:
    """Full disk, then drain, then the end of the process."""
    disk = Disk()
    readiness = AgentReadiness(None, disk, lambda: disk.free_bytes, 100)
    assert readiness.readiness() == Readiness(is_ready=True)
    disk.free_bytes = 99
    assert readiness.readiness() == Readiness(is_ready=False, reason="DISK_FULL")
    disk.free_bytes, disk.disk_is_full = 100, True
    assert readiness.readiness() == Readiness(is_ready=False, reason="DISK_FULL")
    readiness.drain = DrainMark()
    assert readiness.readiness() == Readiness(is_ready=False, reason="DRAINING")
    readiness.is_shutting_down = True
    assert readiness.readiness() == Readiness(is_ready=False, reason="SHUTTING_DOWN")
