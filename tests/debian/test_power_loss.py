"""F18: the journal after a power cut at each sync, by what strace saw written."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from node_agent.adapters.outbound.sqlite.opening import FILE_NAME
from tests.debian.disk_trace import TRACED, Disk, Step, Synced, Told, steps_of
from tests.integration.node_agent.core.builders import opened

pytestmark = pytest.mark.debian
ROOT = Path(__file__).parents[2]
# Enough that the write-ahead log is copied into the file, and begun anew.
TOLD_MIN = 600
EACH = 8


async def new_journal(folder: Path) -> None:
    """An empty journal, closed in order."""
    await (await opened(folder)).close()


def traced(folder: Path, trace: Path) -> list[Step]:
    """Let a process store batches under strace until it has told enough."""
    command = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-e", f"trace={TRACED}"]
    command += ["-o", str(trace), sys.executable, "-m"]
    command += ["tests.integration.node_agent.core.journal_child", str(folder)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/protos/gen"}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        while int(child.stdout.readline()) < TOLD_MIN:
            pass
        # With nobody to tell, the traced process dies, and strace after it.
        child.stdout.close()
    return list(steps_of(trace, folder))


def judged(folder: Path, files: dict[str, bytes]) -> tuple[int, int, int]:
    """Open what is left as the next start would; the watermark, and how many rows there are."""
    for name in ("", "-wal", "-shm"):
        (folder / f"{FILE_NAME}{name}").unlink(missing_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        problems = connection.execute("pragma integrity_check").fetchall()
        assert problems == [("ok",)]
        row: tuple[int, int, int] = connection.execute(
            "select last_command_sequence, (select count(*) from attempts),"
            " (select count(*) from node_events) from identity"
        ).fetchone()
        return row


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], list[Step]]:
    """A journal's files at first, and what was done to them."""
    folder = tmp_path_factory.mktemp("journal")
    asyncio.run(new_journal(folder))
    before = {FILE_NAME: (folder / FILE_NAME).read_bytes()}
    assert sorted(one.name for one in folder.iterdir()) == [FILE_NAME]
    steps = traced(folder, tmp_path_factory.mktemp("trace") / "trace")
    return before, [step for step in steps if getattr(step, "file", "") != f"{FILE_NAME}-shm"]


def test_the_trace_shows_all_that_matters(
    history: tuple[dict[str, bytes], list[Step]],
) -> None:
    """Both files are written and synced, and rows are told; otherwise nothing below means much."""
    synced = {step.file for step in history[1] if isinstance(step, Synced)}
    assert {FILE_NAME, f"{FILE_NAME}-wal"} <= synced
    assert len([step for step in history[1] if isinstance(step, Told)]) > 100


def moments(steps: Sequence[Step]) -> set[int]:
    """Behind which steps the power is cut: when something was told, and just before a sync counts.

    Many of them, and all where the log is copied into the file.
    """
    found = [index for index, step in enumerate(steps) if isinstance(step, Synced | Told)]
    copied = [index for index, step in enumerate(steps) if getattr(step, "file", "") == FILE_NAME]
    close = range(copied[0] - 10, copied[-1] + 10)
    return {*found[::EACH], *(index for index in found if index in close)}


@pytest.mark.parametrize("torn", [None, 1, 2])
def test_a_power_cut_loses_nothing_that_was_told(
    history: tuple[dict[str, bytes], list[Step]], tmp_path: Path, torn: int | None
) -> None:
    """Every told row is there, no batch is split, and the file is sound.

    Whatever part of the unsynced writes arrived.
    """
    before, steps = history
    cuts, disk, told = moments(steps), Disk(before), 0
    assert len(cuts) > 50
    for index, step in enumerate(steps):
        if isinstance(step, Told):
            told = step.number
        if index in cuts:
            random = None if torn is None else Random(f"{torn}:{index}")
            rows = judged(tmp_path, disk.after_power_cut(random))
            sequence = rows[0]
            assert sequence >= told
            assert sequence % 4 == 0
            assert rows == (sequence, sequence, sequence)
        disk.take(step)


def test_without_syncs_rows_would_be_lost(
    history: tuple[dict[str, bytes], list[Step]], tmp_path: Path
) -> None:
    """The test above can fail: had the log never been synced, told rows would be gone."""
    before, steps = history
    disk = Disk(before)
    for step in steps:
        if not isinstance(step, Synced):
            disk.take(step)
    sequence, _, _ = judged(tmp_path, disk.after_power_cut(None))
    assert sequence < max(step.number for step in steps if isinstance(step, Told))
