"""Makes a Service of the host that runs capabilities."""

import asyncio

from node_agent.core.execution.ports import CapabilityHost


class HostService:
    """Starts the host, and ends it once nothing runs any more."""

    name = "capability-host"

    def __init__(self, host: CapabilityHost) -> None:
        self._host = host
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        """Start the host; raises what makes that impossible."""
        await self._host.start()

    async def run(self) -> None:
        """Wait for the end: the host works for whoever calls it."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """End the host and its children."""
        await self._host.stop()
        self._stopped.set()
