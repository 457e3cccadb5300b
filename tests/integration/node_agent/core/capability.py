"""A capability for tests: saves a checkpoint, then answers what it found at its start."""

from pydantic import BaseModel

from node_agent.sdk import Context, capability


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
