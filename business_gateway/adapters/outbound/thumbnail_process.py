"""Small pictures made in child processes, so that no picture can harm the gateway."""

import asyncio
import contextlib
import sys
from typing import Final

_AT_ONCE: Final = 2
_TIMEOUT_S: Final = 20.0


class ThumbnailProcess:
    """Implements ThumbnailMaker: one short-lived child a picture, at most two at once."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def make(self, picture: bytes) -> bytes | None:
        """See ThumbnailMaker."""
        async with self._turns:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "business_gateway.thumbnail_child",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    thumbnail, _ = await child.communicate(picture)
            except TimeoutError:
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        return thumbnail if child.returncode == 0 and thumbnail else None
