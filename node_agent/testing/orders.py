"""Orders for attempts that no control plane made."""

from pathlib import Path

from node_agent.core.execution.ports import RunOrder
from node_agent.core.session.lease_clock import AttemptId
from node_agent.sdk.definition import Capability


def local_order(
    capability: Capability,
    input_json: str,
    work_folder: Path,
    *,
    attempt: str = "local",
    attempt_number: int = 1,
    checkpoint_json: str | None = None,
) -> RunOrder:
    """Return an order without limits; `work_folder` exists."""
    return RunOrder(
        attempt_id=AttemptId(attempt),
        lease_version=1,
        task_id="local",
        execution_id="local",
        step_key=capability.name,
        item_index=-1,
        attempt_number=attempt_number,
        capability=capability.name,
        capability_version=capability.version,
        input_json=input_json,
        checkpoint_json=checkpoint_json,
        work_folder=work_folder,
        run_timeout_s=None,
        heartbeat_timeout_s=None,
        memory_bytes_max=None,
    )
