"""Capabilities that do well, badly, or nothing at all, for the tests of the host."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from node_agent.sdk import BlockingContext, Context, Fatal, Retryable, capability


class Wish(BaseModel):
    model_config = ConfigDict(extra="forbid")

    how: str = ""
    archive_ref: str = ""
    collection_ref: str = ""
    count: int = 0
    size_bytes: int = 0


class Answer(BaseModel):
    text: str = ""
    pid: int = 0
    number: int = 0


@capability("test.behave", version="1", supports_resume=True)
async def behave(ctx: Context, wish: Wish) -> Answer:
    """Does one of many things, most of them bad."""
    if wish.how in _DEATHS:
        sys.stdout.write(f"last words before {wish.how}\n")
        _DEATHS[wish.how]()
    if wish.how in _WAITS:
        await _WAITS[wish.how](ctx)
    if wish.how in _ERRORS:
        raise _ERRORS[wish.how]
    return await _harmless(wish)


async def _harmless(wish: Wish) -> Answer:
    match wish.how:
        case "memory":
            await asyncio.to_thread(_grow, wish.size_bytes)
        case "helper":
            await asyncio.to_thread(_grow_elsewhere, wish.size_bytes)
        case "allocate":
            return Answer(number=len(bytearray(wish.size_bytes)))
        case "wrong output":
            return wish  # type: ignore[return-value]  # the point of the test
        case "environment":
            return Answer(text=" ".join(sorted(os.environ)))
        case "talk":
            sys.stderr.write("x" * wish.size_bytes + "the end\n")
            raise Fatal("TEST_TALKED", "see the log")
    return Answer(text="done", pid=os.getpid())


async def _hang(ctx: Context) -> None:
    ctx.progress(1, "hanging")
    # Long enough for the progress to be sent before the loop is blocked for ever.
    await asyncio.sleep(0.3)
    threading.Event().wait()


async def _sleep(ctx: Context) -> None:
    ctx.progress(1, "sleeping")
    await asyncio.Event().wait()


_WAITS: dict[str, Callable[[Context], Awaitable[None]]] = {"hang": _hang, "sleep": _sleep}
_DEATHS: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "raise": lambda: None,
}
_ERRORS: dict[str, Exception] = {
    "refuse": Fatal("TEST_REFUSED", "this input is refused; send another"),
    "retry": Retryable("TEST_BUSY", "busy now; come again", after_s=7.5),
    "raise": ValueError("nobody expected this"),
}


def _grow(size_bytes: int) -> None:
    step = 16 * 1024 * 1024
    kept = [os.urandom(1) * step for _ in range(size_bytes // step)]
    assert kept
    threading.Event().wait()


def _grow_elsewhere(size_bytes: int) -> None:
    program = f"kept = b'x' * {size_bytes}; import threading; threading.Event().wait()"
    subprocess.run([sys.executable, "-c", program], check=True)


@capability("test.copy", version="1")
async def copy(ctx: Context, wish: Wish) -> Answer:
    """Reads an input, writes it as an artifact, and shows its size."""
    source = await ctx.open_input(wish.archive_ref)
    artifacts = ctx.artifacts(wish.collection_ref)
    await artifacts.put("copied/file.bin", source, "copy", "application/octet-stream")
    return Answer(number=(await asyncio.to_thread(source.stat)).st_size)


@capability("test.blocking", version="1")
def blocking(ctx: BlockingContext, wish: Wish) -> Answer:
    """Does the same as test.copy in a synchronous function."""
    source = ctx.open_input(wish.archive_ref)
    ctx.progress(50, "half")
    ctx.artifacts(wish.collection_ref).put("copied/file.bin", source, "copy", "text/plain")
    ctx.checkpoint({"copied": True})
    return Answer(number=source.stat().st_size)


class CountedSoFar(BaseModel):
    count: int


@capability("test.count", version="1", supports_resume=True)
async def count(ctx: Context, wish: Wish) -> Answer:
    """Uploads one small file per number, with a checkpoint each; `how` is where it dies."""
    saved = ctx.last_checkpoint_as(CountedSoFar)
    done = saved.count if saved is not None else 0
    artifacts = ctx.artifacts(wish.collection_ref)
    for number in range(done, wish.count):
        if wish.how == f"die at {number}" and saved is None:
            os._exit(1)
        file = ctx.work_folder / f"{number}.txt"
        await asyncio.to_thread(_write_once, file, str(number))
        await artifacts.put(f"numbers/{number}.txt", file, "number", "text/plain")
        await ctx.checkpoint(CountedSoFar(count=number + 1))
    return Answer(number=wish.count - done)


def _write_once(file: Path, text: str) -> None:
    with file.open("x", encoding="ascii") as new:
        new.write(text)


@capability("test.inline", version="1", mode="inline")
async def inline(ctx: Context, wish: Wish) -> Answer:
    """Waits for ever in the agent's loop, or stays silent about its cancellation."""
    ctx.progress(1, "waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if wish.how != "late answer":
            raise
    return Answer(text="late")
