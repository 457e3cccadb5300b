"""Pictures made in processes: the same bytes, typed refusals, deaths, and bounded memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from PIL import Image

from node_agent.capabilities.image_watermark import (
    ImageReason,
    ImageRefused,
    Watermarker,
    WatermarkOptions,
)
from node_agent.capabilities.image_watermark.workers import (
    PARALLEL_FROM_BYTES,
    PIXELS_AT_ONCE_MAX,
    PixelRoom,
    ProcessMaker,
    pixels_of,
    worker_count,
)
from tests.fixtures.eventually import eventually

TEXT = "水印 ©"
OPTIONS = WatermarkOptions(opacity=0.7)


def picture(folder: Path, name: str, side: int = 80) -> Path:
    """A grey picture under this name."""
    file = folder / name
    Image.new("RGB", (side, side), (128, 128, 128)).save(file)
    return file


@pytest.fixture
async def maker() -> AsyncIterator[ProcessMaker]:
    """Two workers, which die of deadly pictures."""
    module = "tests.unit.node_agent.image_watermark.dying_worker"
    made = ProcessMaker(TEXT, OPTIONS, 2, module)
    yield made
    await made.close()


def helpers() -> list[psutil.Process]:
    """The workers that live."""
    found = psutil.Process().children()
    return [one for one in found if "dying_worker" in " ".join(one.cmdline())]


async def test_processes_make_what_this_one_would(tmp_path: Path, maker: ProcessMaker) -> None:
    """Several at once, each to its own file, byte for byte; a bad one is refused with its reason.

    One that ends its reader is unreadable, and costs the others nothing; a disk's error is the
    disk's.
    """
    sources = [picture(tmp_path, f"{number}.png", 60 + number) for number in range(4)]
    bad, deadly = tmp_path / "bad.png", picture(tmp_path, "deadly.png")
    bad.write_bytes(sources[0].read_bytes()[:60])

    async def refused(source: Path) -> ImageRefused:
        with pytest.raises(ImageRefused) as caught:
            await maker.make(source, tmp_path / f"{source.name}.out")
        return caught.value

    async with asyncio.TaskGroup() as group:
        made = [
            group.create_task(maker.make(one, one.with_suffix(".out")), name=one.name)
            for one in sources
        ]
        ended = group.create_task(refused(deadly), name="deadly")
        broken = group.create_task(refused(bad), name="bad")
    here = Watermarker(TEXT, OPTIONS)
    for source, result in zip(sources, made, strict=True):
        expected = here.watermark_image(source, source.with_suffix(".here"))
        assert result.result() == expected
        assert source.with_suffix(".out").read_bytes() == source.with_suffix(".here").read_bytes()
    assert ended.result().reason == ImageReason.IMAGE_UNREADABLE
    assert broken.result().reason == ImageReason.IMAGE_TRUNCATED
    with pytest.raises(FileNotFoundError):
        await maker.make(sources[0], tmp_path / "absent" / "out.png")
    assert 1 <= len(helpers()) <= 2
    await maker.close()
    assert not helpers()


async def test_a_cancelled_picture_takes_its_process_along(
    tmp_path: Path, maker: ProcessMaker
) -> None:
    """What the process would answer is for nobody, so no later picture may get it."""
    source = picture(tmp_path, "one.png")
    await maker.make(source, tmp_path / "first.out")
    (worker,) = helpers()
    worker.suspend()
    making = asyncio.create_task(maker.make(source, tmp_path / "second.out"), name="making")

    async def is_asked() -> bool:
        return not maker._idle

    await eventually(is_asked)
    making.cancel()
    await asyncio.wait({making})
    await asyncio.to_thread(psutil.wait_procs, [worker], 10)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


async def test_pictures_wait_for_room_in_their_order() -> None:
    """Together they stay under the bound; a giant waits until it is alone, and is not overtaken."""
    room = PixelRoom(100)
    inside: list[int] = []
    entered: list[int] = []
    most = 0

    async def hold(pixel_count: int, leave: asyncio.Event) -> None:
        nonlocal most
        async with room.of(pixel_count):
            inside.append(pixel_count)
            entered.append(pixel_count)
            most = max(most, sum(inside))
            await leave.wait()
            inside.remove(pixel_count)

    async def has_entered(count: int) -> bool:
        return len(entered) == count

    leaves = [asyncio.Event() for _ in range(4)]
    async with asyncio.TaskGroup() as group:
        for size, leave in zip((60, 40, 1_000, 10), leaves, strict=True):
            group.create_task(hold(size, leave), name=f"hold {size}")
        await eventually(lambda: has_entered(2))
        leaves[0].set()
        leaves[1].set()
        await eventually(lambda: has_entered(3))
        assert inside == [1_000]
        leaves[2].set()
        leaves[3].set()
    assert entered == [60, 40, 1_000, 10]
    assert most == 1_000


def test_pixels_are_read_from_the_header(tmp_path: Path) -> None:
    """What cannot be told takes all of the room."""
    assert pixels_of(picture(tmp_path, "one.png", 30)) == 900
    (tmp_path / "bad").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert pixels_of(tmp_path / "bad") == PIXELS_AT_ONCE_MAX


def test_few_or_small_pictures_need_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a single core; otherwise one a core, and never more than there are pictures."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    assert worker_count(100, PARALLEL_FROM_BYTES - 1) == 0
    assert worker_count(1, PARALLEL_FROM_BYTES) == 0
    assert worker_count(3, PARALLEL_FROM_BYTES) == 3
    assert worker_count(100, PARALLEL_FROM_BYTES) == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert worker_count(100, PARALLEL_FROM_BYTES) == 0
