"""Attempts, events and journals for the tests of the agent's core."""

import itertools
from pathlib import Path

from foundation.clock import SystemClock
from foundation.ids import SystemIds
from foundation.sqlite.database import LocalDatabase
from node_agent.adapters.outbound.sqlite.opening import open_journal
from node_agent.core.execution.ports import UploadedArtifact, Usage
from node_agent.core.journal.domain import KeepAttempt, RunSpec
from node_agent.core.journal.events import ArtifactsReported, Fact, NewEvent, WorkSucceeded
from node_agent.core.session.lease_clock import AttemptId

IDS = SystemIds(SystemClock())
BOOT_ID = IDS.new_id()
_numbers = itertools.count(1)


def spec(attempt_id: str = "", **fields: object) -> RunSpec:
    values: dict[str, object] = {
        "attempt_id": AttemptId(attempt_id or IDS.new_id()),
        "lease_version": 1,
        "task_id": "task",
        "execution_id": "execution",
        "step_key": "step",
        "item_index": -1,
        "attempt_number": 1,
        "capability": "test.echo",
        "capability_version": "1",
        "input_json": '{"text":"übergröße"}',
        **fields,
    }
    return RunSpec(**values)  # type: ignore[arg-type] # a builder's fields are checked by use


def keep(run: RunSpec, sequence: int, *, is_started: bool = False) -> KeepAttempt:
    return KeepAttempt(sequence, IDS.new_id(), run, is_started)


def event(run: RunSpec, fact: Fact | None = None) -> NewEvent:
    return NewEvent(
        IDS.new_id(),
        run.attempt_id,
        run.lease_version,
        BOOT_ID,
        "2026-01-01T00:00:00+00:00",
        fact or WorkSucceeded('{"ok":true}', 0, "", Usage()),
    )


def artifacts(*paths: str) -> ArtifactsReported:
    return ArtifactsReported(
        tuple(UploadedArtifact(path, f"ref:{path}", 3, bytes(32), "image/png") for path in paths)
    )


async def opened(folder: Path) -> LocalDatabase:
    return await open_journal(folder, SystemClock(), IDS.new_id)
