"""Run the servers of a folder until interrupted: `python -m tools.dev_stack FOLDER`."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import signal
import sys
from pathlib import Path

from tools.dev_stack.errors import DevStackError
from tools.dev_stack.stack import Stack, StackConfig, running_stack


def main() -> int:
    """Run until SIGINT or SIGTERM; 0 then, 1 if a server failed or did not start."""
    parser = argparse.ArgumentParser(prog="python -m tools.dev_stack", description=__doc__)
    parser.add_argument("folder", type=Path, help="holds all data; made if missing")
    config = StackConfig(parser.parse_args().folder)
    try:
        return asyncio.run(_run(config))
    except DevStackError as error:
        sys.stderr.write(f"{error}\n")
        return 1


async def _run(config: StackConfig) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with running_stack(config) as stack:
        sys.stdout.write(json.dumps(_description(stack)) + "\n")
        sys.stdout.flush()
        return await _watch(stack, stop)


async def _watch(stack: Stack, stop: asyncio.Event) -> int:
    crash = asyncio.create_task(stack.wait_for_crash(), name="crash of a server")
    stopped = asyncio.create_task(stop.wait(), name="stop asked")
    try:
        await asyncio.wait((crash, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not crash.done():
            return 0
        sys.stderr.write(f"{crash.result()}\n")
        return 1
    finally:
        crash.cancel()
        stopped.cancel()
        await asyncio.gather(crash, stopped, return_exceptions=True)


def _description(stack: Stack) -> dict[str, object]:
    return {
        "postgres_dsn": stack.postgres_dsn("postgres"),
        "nats_url": stack.nats_url,
        "s3": dataclasses.asdict(stack.s3),
        "pids": {server.name: server.pid for server in stack.servers},
    }


if __name__ == "__main__":
    sys.exit(main())
