"""A capability for tests: saves a checkpoint, then answers what it found at its start."""

import os
import time

from pydantic import BaseModel

from node_agent.sdk import BlockingContext, Context, capability


class Given(BaseModel):
    text: str = ""


class Found(BaseModel):
    text: str
    was_resumed: bool


@capability("test.steps", version="1", mode="inline", supports_resume=True)
async def steps(ctx: Context, given: Given) -> Found:
    resumed = ctx.last_checkpoint is not None
    await ctx.checkpoint({"seen": given.text})
    ctx.progress(50)
    return Found(text=given.text, was_resumed=resumed)


class Nothing(BaseModel): ...


@capability("test.endless", version="1", supports_resume=True)
def endless(ctx: BlockingContext, given: Given) -> Nothing:
    """Tells its process, then works until somebody ends it."""
    ctx.checkpoint({"process_id": os.getpid()})
    while not ctx.cancelled:
        time.sleep(0.01)
    ctx.raise_if_cancelled()
    return Nothing()
