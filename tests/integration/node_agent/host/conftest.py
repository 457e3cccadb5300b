"""A host with the test capabilities, orders for it, and a store."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from node_agent.adapters.outbound.process_host import ProcessHost, ProcessHostConfig
from node_agent.adapters.outbound.transfers import TransferConfig
from node_agent.core.execution.ports import RunOrder
from node_agent.core.session.lease_clock import AttemptId
from node_agent.sdk import load_capabilities
from tests.integration.node_agent.host.services import Store, client_of
from tools.dev_stack import ObjectStoreAccess

MODULE = "tests.integration.node_agent.host.capabilities"
REFERENCES = (
    *(f"{MODULE}:{name}" for name in ("behave", "copy", "blocking", "count", "inline")),
    "node_agent.capabilities.noop:capability",
)
QUICK = TransferConfig(wait_initial_s=0.01, wait_max_s=0.05, silence_timeout_s=2.0)

MakeOrder = Callable[..., RunOrder]


@pytest.fixture
async def host() -> AsyncIterator[ProcessHost]:
    config = ProcessHostConfig(
        slot_count=1, stop_grace_s=0.5, watch_interval_s=0.1, transfers=QUICK
    )
    host = ProcessHost(load_capabilities(REFERENCES), config)
    yield host
    await host.stop()


@pytest.fixture
def order(tmp_path: Path) -> MakeOrder:
    def make(
        capability: str = "test.behave", *, given: dict[str, Any] | None = None, **changes: Any
    ) -> RunOrder:
        folder = tmp_path / "attempt"
        folder.mkdir(exist_ok=True)
        fields: dict[str, Any] = {
            "attempt_id": AttemptId("0190a000-0000-7000-8000-000000000001"),
            "lease_version": 1,
            "task_id": "task",
            "execution_id": "execution",
            "step_key": "step",
            "item_index": -1,
            "attempt_number": 1,
            "capability": capability,
            "capability_version": "1",
            "input_json": json.dumps(given or {}),
            "checkpoint_json": None,
            "work_folder": folder,
            "run_timeout_s": None,
            "heartbeat_timeout_s": None,
            "memory_bytes_max": None,
        }
        return RunOrder(**(fields | changes))

    return make


@pytest.fixture
async def store(object_store: ObjectStoreAccess) -> AsyncIterator[Store]:
    async with client_of(object_store) as client:
        yield Store(client, object_store)
