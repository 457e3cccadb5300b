"""A process that hosts a sleeping child and waits to be killed; writes the child's id."""

import asyncio
import sys
from pathlib import Path

import psutil

from node_agent.adapters.outbound.process_host import ProcessHost, ProcessHostConfig
from node_agent.sdk import load_capabilities


async def main() -> None:
    """Start one child, say which, and wait."""
    reference = "tests.integration.node_agent.host.capabilities:behave"
    host = ProcessHost(load_capabilities([reference]), ProcessHostConfig(slot_count=1))
    await host.start()
    (child,) = psutil.Process().children()
    Path(sys.argv[1]).write_text(str(child.pid), encoding="ascii")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
