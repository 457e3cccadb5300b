"""Watermarks pictures in parallel in processes, or one by one in a thread where they are few."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import warnings
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol, Self

from PIL import Image

from node_agent.capabilities.image_watermark.classification import ImageFormat
from node_agent.capabilities.image_watermark.options import WatermarkOptions
from node_agent.capabilities.image_watermark.refusals import ImageRefused, unreadable
from node_agent.capabilities.image_watermark.watermarker import ImageResult, Watermarker

_MODULE: Final = "node_agent.capabilities.image_watermark.worker"
WORKERS_MAX: Final = 8
# A process costs about a second of a core and 60 MB; below this it costs more than it saves.
PARALLEL_FROM_BYTES: Final = 2 * 1024 * 1024
# Of all pictures being made at once, about 12 bytes of memory each; one alone may have more.
PIXELS_AT_ONCE_MAX: Final = 64_000_000
_TRIES: Final = 2
# Pillow opens an MPO as the JPEG that it begins with.
_FORMATS: Final = [one.value for one in ImageFormat if one is not ImageFormat.MPO]
# Answers are short; notes and messages are bounded by whoever writes them.
_ANSWER_BYTES_MAX: Final = 1024 * 1024


class Maker(Protocol):
    """Makes pictures, several at once or one by one."""

    @property
    def at_once(self) -> int:
        """How many are worth asking for at the same time."""
        ...

    async def make(self, source: Path, destination: Path) -> ImageResult:
        """Write a watermarked copy; raises ImageRefused, or OSError of the disk."""
        ...

    async def close(self) -> None:
        """End what was started; idempotent."""
        ...


def worker_count(picture_count: int, size_bytes: int) -> int:
    """Return how many processes are worth having; 0 for a thread of this one."""
    cores = len(os.sched_getaffinity(0))
    if cores == 1 or picture_count == 1 or size_bytes < PARALLEL_FROM_BYTES:
        return 0
    return min(cores, picture_count, WORKERS_MAX)


class ThreadMaker:
    """Makes one picture after the other in a thread."""

    at_once = 1

    def __init__(self, watermarker: Watermarker) -> None:
        self._watermarker = watermarker
        self._turn = asyncio.Lock()

    async def make(self, source: Path, destination: Path) -> ImageResult:
        """See Maker."""
        async with self._turn:
            return await asyncio.to_thread(self._watermarker.watermark_image, source, destination)

    async def close(self) -> None:
        """See Maker."""


class ProcessMaker:
    """Makes pictures in processes, which are started as they are needed.

    A picture whose reader dies is tried once more; if that dies too, it is unreadable: its
    neighbours have other processes.
    """

    def __init__(
        self, text: str, options: WatermarkOptions, count: int, module: str = _MODULE
    ) -> None:
        """`count` processes at most, which run `module`; the text was judged before."""
        self._module = module
        self.at_once = count
        self._settings = json.dumps(
            {
                "parent_pid": os.getpid(),
                "text": text,
                "layout": options.layout,
                "options": {
                    name: value for name, value in asdict(options).items() if name != "layout"
                },
            }
        )
        self._room = asyncio.Semaphore(count)
        # Muting warnings is the whole process's, so that no two threads may do it at once.
        self._measuring = asyncio.Lock()
        self._pixels = PixelRoom(PIXELS_AT_ONCE_MAX)
        self._idle: deque[_Worker] = deque()
        self._started: set[_Worker] = set()

    async def make(self, source: Path, destination: Path) -> ImageResult:
        """See Maker."""
        async with self._measuring:
            pixel_count = await asyncio.to_thread(pixels_of, source)
        async with self._room, self._pixels.of(pixel_count):
            for _ in range(_TRIES):
                answer = await self._asked(source, destination)
                if answer is not None:
                    return _result(answer)
        raise unreadable("reading it ended the process that did, twice")

    async def close(self) -> None:
        """See Maker."""
        started, self._started = self._started, set()
        self._idle.clear()
        for worker in started:
            await worker.end()

    async def _asked(self, source: Path, destination: Path) -> Mapping[str, Any] | None:
        """Have a worker do it; None if that died."""
        worker = self._idle.popleft() if self._idle else await self._start()
        answer = await worker.ask(source, destination)
        if answer is None:
            self._started.discard(worker)
            await worker.end()
        else:
            self._idle.append(worker)
        return answer

    async def _start(self) -> _Worker:
        worker = await _Worker.start(self._module, self._settings)
        self._started.add(worker)
        return worker


class _Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, module: str, settings: str) -> Self:
        # It belongs to this process's session, and so is killed with it.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            settings,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_ANSWER_BYTES_MAX,
        )
        return cls(process)

    async def ask(self, source: Path, destination: Path) -> Mapping[str, Any] | None:
        """Return the answer, None if there will be none."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        try:
            asked.write(json.dumps([str(source), str(destination)]).encode("ascii") + b"\n")
            await asked.drain()
            line = await answers.readline()
        except ConnectionError:
            return None
        except asyncio.CancelledError:
            # Whatever it answers now is for nobody.
            self._kill()
            raise
        if not line.endswith(b"\n"):
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def end(self) -> None:
        """Kill it, and wait for its end."""
        self._kill()
        await self._process.wait()
        # Its pipes have transports of their own, which would outlive the loop.
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


class PixelRoom:
    """Lets pictures in, in their order, while they have no more pixels than a bound together."""

    def __init__(self, pixels_max: int) -> None:
        self._free = self._pixels_max = pixels_max
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def of(self, pixel_count: int) -> AsyncIterator[None]:
        """Hold room for a picture; one of more pixels than the bound is alone."""
        taken = min(pixel_count, self._pixels_max)
        async with self._turn:
            while self._free < taken:
                self._freed.clear()
                await self._freed.wait()
            self._free -= taken
        try:
            yield
        finally:
            self._free += taken
            self._freed.set()


def pixels_of(file: Path) -> int:
    """Return the pixels of a picture's first frame by its header; the bound if that is damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(file, formats=_FORMATS) as picture:
                return picture.width * picture.height
    except Exception:  # noqa: BLE001 - whatever a damaged header does to its reader
        return PIXELS_AT_ONCE_MAX


def _result(answer: Mapping[str, Any]) -> ImageResult:
    if "refused" in answer:
        raise ImageRefused(*answer["refused"])
    if "failed" in answer:
        raise OSError(*answer["failed"])
    made = answer["made"]
    return ImageResult(
        **{**made, "format": ImageFormat(made["format"]), "notes": tuple(made["notes"])}
    )
