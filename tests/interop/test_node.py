"""A client in another language, from the .proto files alone: @grpc/grpc-js on Node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.interop.clients import Target, node_client

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("node_packages")]

ALREADY_EXISTS = 6


def _request(key: str, value: int) -> dict[str, Any]:
    return {
        "idempotency_key": key,
        "name": "from Node",
        "workflow_name": "interop-two-steps",
        "input_json": json.dumps({"value": value}),
        "labels": {"client": "node"},
    }


def test_node_creates_a_task_and_watches_it_to_the_end(target: Target, key: str) -> None:
    """The stream brings contiguous events and ends by itself after the terminal one."""
    answer = node_client(target, "create-and-watch", _request(key, 3))
    assert answer["created"]["outcome"] == "MUTATION_OUTCOME_CREATED"
    events = answer["events"]
    assert [int(event["sequence"]) for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "execution.created"
    assert events[-1]["type"] == "execution.succeeded"
    assert json.loads(events[-1]["output"]) == {"value": 3}


def test_node_repeats_a_key(target: Target, key: str) -> None:
    """The same request under the same key answers the same ids as REPLAYED."""
    first = node_client(target, "create", _request(key, 4))["created"]
    again = node_client(target, "create", _request(key, 4))["created"]
    assert again["outcome"] == "MUTATION_OUTCOME_REPLAYED"
    assert (again["task_id"], again["execution_id"]) == (first["task_id"], first["execution_id"])


def test_node_reuses_a_key_for_another_body(target: Target, key: str) -> None:
    """Another request under the same key is refused, and the details name what is there."""
    first = node_client(target, "create", _request(key, 5))["created"]
    error = node_client(target, "create", _request(key, 6))["error"]
    assert error["code"] == ALREADY_EXISTS
    info = next(one for one in error["details"] if one["type"] == "google.rpc.ErrorInfo")
    assert (info["reason"], info["domain"]) == ("IDEMPOTENCY_KEY_REUSED", "tdp")
    assert first["task_id"] in info["metadata"].values()
