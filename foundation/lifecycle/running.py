"""Makes a service of anything that runs until it is stopped."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol


class Runnable(Protocol):
    """A queue, a pump: `run` works until `stop`, which returns when it has ended."""

    async def run(self) -> None:
        """Work until stopped."""
        ...

    async def stop(self) -> None:
        """Finish what is in hand and return when `run` has ended."""
        ...


async def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True)
class RunningService:
    """A Service around a Runnable; `opening` and `closing` frame its life."""

    name: str
    runnable: Runnable
    opening: Callable[[], Awaitable[None]] = _nothing
    closing: Callable[[], Awaitable[None]] = _nothing

    async def start(self) -> None:
        """Get ready."""
        await self.opening()

    async def run(self) -> None:
        """Work until stopped."""
        await self.runnable.run()

    async def stop(self) -> None:
        """Stop, then close what was opened."""
        await self.runnable.stop()
        await self.closing()
