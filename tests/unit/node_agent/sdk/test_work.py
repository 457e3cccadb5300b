"""What a capability may rely on: reports, ledger, reserved places, and how its end is read."""

import asyncio
import errno
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from foundation.clock import ManualClock
from foundation.errors import ResourceExhaustedError
from node_agent.core.execution.ports import (
    AllocatedArtifact,
    ArtifactRequest,
    Grant,
    UploadedArtifact,
)
from node_agent.sdk import Fatal, Retryable
from node_agent.sdk.artifacts import Artifacts
from node_agent.sdk.files import GrantSource, Transferred
from node_agent.sdk.ledger import ArtifactLedger
from node_agent.sdk.reports import Reports
from node_agent.sdk.running import failure_of
from tests.integration.node_agent.host.services import RecordedServices

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def uploaded(number: int) -> UploadedArtifact:
    return UploadedArtifact(f"{number}.txt", f"ref-{number}", number, bytes(32), "text/plain")


class Reported:
    """Keeps what the ledger reports."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    async def __call__(self, artifacts: Sequence[UploadedArtifact]) -> None:
        self.batches.append([artifact.relative_path for artifact in artifacts])


@pytest.mark.parametrize("cut", [0, 1, 40])
async def test_a_ledger_survives_its_process(tmp_path: Path, cut: int) -> None:
    """A new process knows the lines that were written whole, and reports what was not reported."""
    file, reported = tmp_path / "ledger", Reported()
    ledger = ArtifactLedger(file, reported)
    await ledger.record(uploaded(1))
    await ledger.report()
    await ledger.record(uploaded(2))
    await ledger.sync()
    await ledger.record(uploaded(3))
    await ledger.sync()
    os.truncate(file, file.stat().st_size - cut)
    later = ArtifactLedger(file, reported)
    assert later.count == (3 if cut == 0 else 2)
    await later.report()
    await later.record(uploaded(3))
    await later.report()
    paths = [path for batch in reported.batches for path in batch]
    again = ["3.txt"] if cut == 0 else []
    assert paths == ["1.txt", "2.txt", *again, "3.txt"]
    assert later.count == 3


async def test_the_latest_progress_wins_and_few_are_sent() -> None:
    """A thousand reports at once make one message, with the last one's content in bounds."""
    sent: list[tuple[int, str]] = []
    arrived = asyncio.Event()

    async def progress(percent: int, message: str) -> None:
        sent.append((percent, message))
        arrived.set()

    async def alive() -> None:
        raise AssertionError("progress shows life enough")

    async with asyncio.TaskGroup() as group:
        reports = Reports(progress, alive)
        reports.begin(group)
        for percent in range(1_000):
            reports.progress(percent, "x" * 300)
        await arrived.wait()
        reports.end()
    assert sent == [(100, "x" * 200)]


class Places(RecordedServices):
    """Counts allocations; grants last as long as is said."""

    def __init__(self, lasts_s: float) -> None:
        super().__init__()
        self.lasts_s = lasts_s
        self.asked: list[list[ArtifactRequest]] = []

    async def allocate(
        self, collection_ref: str, requests: Sequence[ArtifactRequest]
    ) -> Sequence[AllocatedArtifact]:
        self.asked.append(list(requests))
        expires_at = NOW + timedelta(seconds=self.lasts_s)
        grant = Grant("g", "r", "PUT", "http://x", {}, expires_at, 0, b"")
        place = f"{collection_ref}-{len(self.asked)}"
        return [AllocatedArtifact(one.relative_path, place, grant) for one in requests]


class TakesAll:
    """A store that takes everything."""

    async def upload(self, source: Path, grants: GrantSource, on_bytes: object) -> Transferred:
        del on_bytes
        await grants()
        return Transferred(len(source.read_bytes()), bytes(32))

    async def download(
        self, grants: GrantSource, destination: Path, on_bytes: object
    ) -> Transferred:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("lasts_s", "room_bytes", "kind", "expected"),
    [
        (600.0, 100, "text", "c-1"),
        (600.0, 2, "text", "c-2"),
        (600.0, 100, "other", "c-2"),
        (5.0, 100, "text", "c-2"),
    ],
)
async def test_a_reserved_place_is_used_while_it_fits(
    tmp_path: Path, lasts_s: float, room_bytes: int, kind: str, expected: str
) -> None:
    """A place that is too small, of another kind or near its end is asked for again."""
    file = tmp_path / "a.txt"
    file.write_text("content", encoding="ascii")
    services, reported = Places(lasts_s), Reported()
    ledger = ArtifactLedger(tmp_path / "ledger", reported)
    artifacts = Artifacts("c", services, TakesAll(), ledger, ManualClock(NOW), lambda: None)
    await artifacts.reserve([ArtifactRequest("a.txt", kind, "text/plain", room_bytes)])
    artifact = await artifacts.put("a.txt", file, "text", "text/plain")
    assert artifact.resource_ref == expected


async def test_places_are_asked_for_two_hundred_at_a_time(tmp_path: Path) -> None:
    """The contract's bound on one call is kept for the author."""
    services = Places(600.0)
    ledger = ArtifactLedger(tmp_path / "ledger", Reported())
    artifacts = Artifacts("c", services, TakesAll(), ledger, ManualClock(NOW), lambda: None)
    await artifacts.reserve([ArtifactRequest(f"{n}", "t", "m/t", 1) for n in range(450)])
    assert [len(batch) for batch in services.asked] == [200, 200, 50]


@pytest.mark.parametrize(
    ("error", "reason", "retryable", "delay_s"),
    [
        (Fatal("BAD_INPUT", "no"), "BAD_INPUT", False, None),
        (Retryable("BUSY", "later", after_s=3), "BUSY", True, 3),
        (ResourceExhaustedError("full", retry_delay_s=9), "RESOURCE_EXHAUSTED", True, 9),
        (MemoryError(), "MEMORY_LIMIT", False, None),
        (OSError(errno.ENOSPC, "full"), "DISK_FULL", True, None),
        (OSError(errno.EIO, "broken"), "WORK_CRASHED", True, None),
        (ExceptionGroup("", [ValueError("x"), Fatal("MEANT", "y")]), "MEANT", False, None),
        (ExceptionGroup("", [ExceptionGroup("", [KeyError("x")])]), "WORK_CRASHED", True, None),
    ],
)
def test_every_error_has_a_meaning(
    error: Exception,
    reason: str,
    retryable: bool,  # noqa: FBT001 - a parameter of the case
    delay_s: float | None,
) -> None:
    """Errors raised on purpose keep their words, even from within a group of tasks."""
    failure = failure_of(error)
    assert (failure.reason, failure.retryable, failure.next_retry_delay_s) == (
        reason,
        retryable,
        delay_s,
    )
    assert failure.infrastructure == (reason == "DISK_FULL")


def test_messages_hide_secrets() -> None:
    """A signed URL in an unexpected error is not shown."""
    failure = failure_of(ValueError("http://s/o?X-Amz-Signature=abcdef"))
    assert "abcdef" not in failure.message
