"""The journal in a real SQLite file: what survives, what is dropped, and what damage does."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from foundation.clock import SystemClock
from foundation.outbox.model import Mark, OutboxStatus
from foundation.outbox.sqlite_store import SqliteOutboxStore
from foundation.sqlite.database import LocalDatabase
from foundation.sqlite.errors import LocalDatabaseLockedError, LocalDiskFullError
from node_agent.adapters.outbound.sqlite.journal import SqliteJournal
from node_agent.adapters.outbound.sqlite.opening import FILE_NAME
from node_agent.core.journal.application import JournalWriter
from node_agent.core.journal.domain import (
    CommandKind,
    DrainMark,
    FinishAttempt,
    ForgetAttempt,
    Identify,
    KeepOrder,
    MarkDrain,
    MarkSequence,
    ReportArtifacts,
    SaveCheckpoint,
    StartAttempt,
    StopReason,
    Write,
)
from node_agent.core.journal.events import fact_from_json
from node_agent.limits import node_events_policy
from tests.integration.node_agent.core.builders import artifacts, event, keep, opened, spec


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[LocalDatabase]:
    database = await opened(tmp_path)
    yield database
    await database.close()


@pytest.fixture
def journal(database: LocalDatabase) -> SqliteJournal:
    return SqliteJournal(database)


def outbox_of(database: LocalDatabase) -> SqliteOutboxStore:
    return SqliteOutboxStore(database, node_events_policy(), SystemClock(), table="node_events")


async def deliver_all(store: SqliteOutboxStore) -> int:
    """Claims and marks as delivered until nothing is left."""
    count = 0
    while rows := (await store.claim(500)).rows:
        count += len(rows)
        marks = [Mark(row.outbox_id, row.claim_id, OutboxStatus.PUBLISHED) for row in rows]
        await store.mark(marks)
    return count


async def test_a_reopened_journal_knows_everything(tmp_path: Path) -> None:
    """Identity, marks, attempts with their checkpoints, orders and paths outlive the process."""
    first = await opened(tmp_path)
    journal = SqliteJournal(first)
    fresh = await journal.load()
    run = spec(run_timeout_s=10.0)
    await journal.apply(
        [
            Identify("node", "ab"),
            keep(run, 7),
            KeepOrder(8, "cancel", CommandKind.CANCEL, run.attempt_id, StopReason.CANCEL),
            KeepOrder(9, "extend", CommandKind.EXTEND, run.attempt_id, extension_s=5.0),
            MarkSequence(9),
            StartAttempt(run.attempt_id),
            SaveCheckpoint(run.attempt_id, '{"done":1}'),
            SaveCheckpoint(run.attempt_id, '{"done":2}'),
            ReportArtifacts(event(run, artifacts("a", "b")), ["a", "b"]),
            MarkDrain(DrainMark(3.0)),
        ]
    )
    await first.close()
    second = await opened(tmp_path)
    contents = await SqliteJournal(second).load()
    await second.close()
    assert contents.identity.incarnation_id == fresh.identity.incarnation_id
    assert contents.identity.node_id == "node"
    assert contents.last_command_sequence == 9
    assert contents.drain == DrainMark(3.0)
    assert contents.event_count == 1
    (attempt,) = contents.attempts
    assert attempt.spec == run
    assert attempt.was_started
    assert not attempt.is_finished
    assert attempt.stop_reason is StopReason.CANCEL
    assert attempt.run_timeout_s == 15.0
    assert attempt.checkpoint_json == '{"done":2}'
    assert attempt.artifact_paths == {"a", "b"}


async def test_a_failed_transaction_leaves_nothing(journal: SqliteJournal) -> None:
    """One impossible write undoes the others of its batch."""
    run = spec()
    with pytest.raises(Exception, match="CHECK"):
        await journal.apply([keep(run, 1), MarkSequence(1), keep(spec(lease_version=0), 2)])
    contents = await journal.load()
    assert contents.attempts == ()
    assert contents.last_command_sequence == 0


async def test_the_watermark_never_goes_back(journal: SqliteJournal) -> None:
    """A lower sequence changes nothing."""
    await journal.apply([MarkSequence(5)])
    await journal.apply([MarkSequence(3)])
    assert (await journal.load()).last_command_sequence == 5


async def test_the_acknowledged_final_event_ends_the_attempt(
    database: LocalDatabase, journal: SqliteJournal
) -> None:
    """Attempt, command, checkpoint and paths go in the transaction that marks the event."""
    run, other = spec(), spec()
    await journal.apply([keep(run, 1), keep(other, 2), SaveCheckpoint(run.attempt_id, "{}")])
    await journal.apply([ReportArtifacts(event(run, artifacts("a")), ["a"])])
    await journal.apply([FinishAttempt(event(run), waits_for_earlier=True)])
    assert [one.is_finished for one in (await journal.load()).attempts] == [True, False]
    store = outbox_of(database)
    claimed = (await store.claim(10)).rows
    assert [row.extra["is_final"] for row in claimed] == [0], "the result waits for its artifacts"
    await store.mark([Mark(claimed[0].outbox_id, claimed[0].claim_id, OutboxStatus.PUBLISHED)])
    assert len((await journal.load()).attempts) == 2
    assert await deliver_all(store) == 1
    contents = await journal.load()
    assert [one.spec.attempt_id for one in contents.attempts] == [other.attempt_id]
    assert contents.event_count == 0
    left = await database.read(
        lambda c: (
            c.execute("select count(*) from inbox").fetchone()[0],
            c.execute("select count(*) from checkpoints").fetchone()[0],
            c.execute("select count(*) from artifact_paths").fetchone()[0],
        )
    )
    assert left == (1, 0, 0)


async def test_forgetting_keeps_events_on_their_way(
    database: LocalDatabase, journal: SqliteJournal
) -> None:
    """A forgotten attempt is gone; what it had to tell is still sent."""
    run = spec()
    report = event(run, artifacts("a"))
    await journal.apply([keep(run, 1), ReportArtifacts(report, ["a"])])
    await journal.apply([ForgetAttempt(run.attempt_id), SaveCheckpoint(run.attempt_id, "{}")])
    contents = await journal.load()
    assert contents.attempts == ()
    assert contents.event_count == 1
    (row,) = (await outbox_of(database).claim(10)).rows
    assert str(row.outbox_id) == report.event_id
    assert fact_from_json(row.payload) == report.fact


async def test_a_damaged_file_is_set_aside_and_a_new_incarnation_begins(tmp_path: Path) -> None:
    """Nothing of a damaged journal is trusted, and nothing of it is deleted."""
    first = await opened(tmp_path)
    old = (await SqliteJournal(first).load()).identity.incarnation_id
    await first.close()
    content = bytearray((tmp_path / FILE_NAME).read_bytes())
    content[4096:8192] = b"\xa5" * 4096
    (tmp_path / FILE_NAME).write_bytes(content)
    second = await opened(tmp_path)
    contents = await SqliteJournal(second).load()
    await second.close()
    assert contents.identity.incarnation_id != old
    (aside,) = tmp_path.glob("journal.db.corrupt-*Z")
    assert aside.read_bytes() == content


async def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    """Rubbish under the journal's name is damage too."""
    (tmp_path / FILE_NAME).write_bytes(b"rubbish" * 1000)
    database = await opened(tmp_path)
    await database.close()
    assert len(list(tmp_path.glob("journal.db.corrupt-*Z"))) == 1


async def test_a_locked_file_is_told_and_left_alone(tmp_path: Path) -> None:
    """A journal that another process has locked is an error, not damage."""
    first = await opened(tmp_path)
    await first.read(lambda c: c.execute("select 1").fetchone())
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import sqlite3,sys;c=sqlite3.connect(sys.argv[1],isolation_level=None);"
        "c.execute('begin exclusive');print('held',flush=True);sys.stdin.read()",
        str(tmp_path / FILE_NAME),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    try:
        await first.read(lambda c: c.execute("pragma busy_timeout = 50").fetchone())
        with pytest.raises(LocalDatabaseLockedError):
            await SqliteJournal(first).apply([MarkSequence(1)])
    finally:
        holder.kill()
        await holder.communicate()
    await SqliteJournal(first).apply([MarkSequence(1)])
    await first.close()
    assert not list(tmp_path.glob("*corrupt*"))


async def test_a_full_disk_is_told_and_survived(
    database: LocalDatabase, journal: SqliteJournal
) -> None:
    """With no room the writer says so; what must not be lost is stored once there is room."""
    writer = JournalWriter(journal, retry_full_disk_s=0.01)
    running = asyncio.create_task(writer.run(), name="writer")
    used = await database.read(lambda c: c.execute("pragma page_count").fetchone()[0])
    await database.read(lambda c: c.execute(f"pragma max_page_count = {used}").fetchone())
    run = spec(input_json='"' + "x" * 100_000 + '"')
    with pytest.raises(LocalDiskFullError):
        await writer.submit([keep(run, 1), MarkSequence(1)])
    assert [writer.disk_is_full] == [True]
    stubborn = asyncio.create_task(
        writer.submit_in_any_case([keep(run, 1), MarkSequence(1)]), name="stubborn"
    )
    await asyncio.sleep(0)
    assert not running.done(), "a full disk ends nothing"
    await database.read(lambda c: c.execute("pragma max_page_count = 100000").fetchone())
    await stubborn
    assert [writer.disk_is_full] == [False]
    await writer.stop()
    await running
    assert (await journal.load()).last_command_sequence == 1


async def test_a_failure_of_the_file_ends_the_writer(
    database: LocalDatabase, journal: SqliteJournal
) -> None:
    """Whoever submits hears of it, and the service dies, so that the process stops loudly."""
    writer = JournalWriter(journal)
    running = asyncio.create_task(writer.run(), name="writer")
    await database.close()
    with pytest.raises(Exception, match="not open"):
        await writer.submit([MarkSequence(1)])
    with pytest.raises(Exception, match="not open"):
        await running


async def test_a_probe_writes_and_survives_a_full_disk(
    database: LocalDatabase, journal: SqliteJournal
) -> None:
    """It is a write like any other, but a full disk is told elsewhere and ends nothing."""
    writer = JournalWriter(journal)
    running = asyncio.create_task(writer.run(), name="writer")
    await writer.probe()
    await writer.probe()
    row = await database.read(lambda c: c.execute("select probe_count from identity").fetchone())
    assert row[0] == 2

    async def apply(writes: Sequence[Write]) -> None:
        raise LocalDiskFullError("no room")

    journal.apply = apply  # type: ignore[method-assign] # a disk that is full for the journal alone
    await writer.probe()
    assert writer.disk_is_full
    assert not running.done()
    await writer.stop()
    await running


async def test_kill_nine_loses_nothing_that_was_told_and_splits_no_batch(tmp_path: Path) -> None:
    """A child stores batches and tells each; killed at any moment, the file holds whole batches."""
    root = Path(__file__).parents[4]
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.node_agent.core.journal_child",
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root}/protos/gen"},
    )
    assert child.stdout is not None
    told = 0
    while told < 40:
        told = int(await child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    rest, _ = await child.communicate()
    told = max(
        [told, *(int(line) for line in rest.splitlines(keepends=True) if line[-1:] == b"\n")]
    )
    database = await opened(tmp_path)
    await database.check_integrity()
    contents = await SqliteJournal(database).load()
    await database.close()
    assert contents.last_command_sequence >= told
    assert contents.last_command_sequence % 4 == 0
    assert len(contents.attempts) == contents.last_command_sequence
    assert contents.event_count == contents.last_command_sequence
