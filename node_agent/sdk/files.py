"""What the context needs of transfers: files from and to the object store, by grants."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from node_agent.core.execution.ports import Grant

GrantSource = Callable[[], Awaitable[Grant]]
"""Returns a usable grant; called first, and again when the store no longer takes the last one."""


@dataclass(frozen=True, slots=True)
class Transferred:
    """What went over the wire, whole; `sha256` has 32 bytes."""

    size_bytes: int
    sha256: bytes


class FileTransfers(Protocol):
    """Moves whole files, streamed, hashed and retried; errors are TdpErrors."""

    async def download(
        self, grants: GrantSource, destination: Path, on_bytes: Callable[[], None]
    ) -> Transferred:
        """Write the object to `destination`, whole and checked against the grant, or not at all.

        `on_bytes` is called as bytes come, to show that the work is alive.
        """
        ...

    async def upload(
        self, source: Path, grants: GrantSource, on_bytes: Callable[[], None]
    ) -> Transferred:
        """Send the whole file; `on_bytes` is called as bytes go."""
        ...
