"""Work on a platform ends with its own result or error, or with the death of a process."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from foundation.errors import NotFoundError
from tools.cli.stack_runner import ProcessDiedError, while_alive
from tools.dev_stack.platform import Platform


class Watched:
    """Stands for a platform of which only the death of a process matters."""

    def __init__(self) -> None:
        self.died = asyncio.Event()

    async def wait_for_crash(self) -> str:
        await self.died.wait()
        return "agent-1 ended with status -9"


async def test_the_result_comes_back() -> None:
    """Work that ends answers its result."""

    async def work() -> int:
        return 7

    assert await while_alive(cast("Platform", Watched()), work()) == 7


async def test_the_error_comes_back_plain() -> None:
    """Work that fails raises its own error, not a group of errors."""

    async def work() -> None:
        raise NotFoundError("nothing there")

    with pytest.raises(NotFoundError, match="nothing there"):
        await while_alive(cast("Platform", Watched()), work())


async def test_a_dead_process_ends_the_work() -> None:
    """When a process dies, the work is cancelled and the error has the process's log."""
    platform, cancelled = Watched(), asyncio.Event()

    async def work() -> None:
        platform.died.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    with pytest.raises(ProcessDiedError, match="agent-1 ended"):
        await while_alive(cast("Platform", platform), work())
    assert cancelled.is_set()
