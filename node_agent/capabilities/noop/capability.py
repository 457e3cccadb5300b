"""Declares noop."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from node_agent.sdk import Context, capability


class Anything(BaseModel):
    """Any object."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, Any]


@capability("noop", version="1", mode="inline", supports_resume=True)
async def noop(_ctx: Context, given: Anything) -> Anything:
    """Answer the input as it is."""
    return given
