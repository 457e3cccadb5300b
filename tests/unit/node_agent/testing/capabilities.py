"""Capabilities that break one part of the contract each, all inline so that no child is needed."""

import asyncio
import itertools
from typing import Any

from pydantic import BaseModel, Field

from node_agent.sdk import BlockingContext, Context, Fatal, capability

RUNS = itertools.count(1)


class Given(BaseModel):
    how: str
    text_ref: str
    collection_ref: str = "results"


class Made(BaseModel):
    size: int = Field(ge=0)
    ref: str = ""


class Step(BaseModel):
    done: int


@capability("test.sound", version="1", mode="inline", supports_resume=True)
async def sound(ctx: Context, given: Given) -> Made:
    """Four steps with a checkpoint each, and a report of them; `how` is what it does wrong."""
    text = await asyncio.to_thread((await ctx.open_input(given.text_ref)).read_bytes)
    if not text.endswith(b"."):
        raise _refusal(given.how, text)
    saved = ctx.last_checkpoint_as(Step) if given.how != "starts again" else None
    for number in range(saved.done if saved else 0, 4):
        await ctx.checkpoint(Step(done=number + 1))
    report = ctx.work_folder / "report.txt"
    content = str(next(RUNS)) if given.how == "chance" else "same"
    await asyncio.to_thread(report.write_text, content)
    name = f"report-{next(RUNS)}.txt" if given.how == "other paths" else "report.txt"
    placed = await ctx.artifacts(given.collection_ref).put(name, report, "report", "text/plain")
    if given.how == "once" and ctx.attempt_number > 1:
        raise Fatal("DONE_BEFORE", "the report is there already")
    size = -1 if given.how == "schema" else len(text)
    return Made.model_construct(size=size, ref=placed.resource_ref)


def _refusal(how: str, text: bytes) -> Exception:
    if how == "crash":
        return IndexError("no full stop")
    if how == "fickle":
        return Fatal("TEXT_ODD", f"text {next(RUNS)} is odd")
    return Fatal("TEXT_CUT_OFF", f"the text ends at byte {len(text)} without a full stop")


@capability("test.forgetful", version="1", mode="inline")
async def forgetful(ctx: Context, given: Given) -> Made:
    """Saves a checkpoint that nothing will ever read."""
    await ctx.checkpoint({"done": 1})
    return Made(size=len(given.how))


@capability("test.letters", version="1", supports_resume=True)
def letters(ctx: BlockingContext, given: Given) -> Made:
    """Counts letters one by one in a thread, with a checkpoint each."""
    text = ctx.open_input(given.text_ref).read_text()
    saved = ctx.last_checkpoint_as(Step)
    done = saved.done if saved else 0
    if given.how == "raise":
        raise KeyError(text)
    if given.how == "wrong type":
        odd: Any = "many"
        return Made.model_construct(size=odd)
    for number in range(done, len(text)):
        ctx.progress(100 * number / len(text), f"letter {number}")
        ctx.checkpoint(Step(done=number + 1))
    return Made(size=len(text) - done)
