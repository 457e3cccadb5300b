"""Writes each process's schema.sql anew: `python -m tools.schema`."""

import asyncio
import sys
import tempfile
from pathlib import Path

from foundation.errors import TdpError
from tools.dev_stack import Stack, StackConfig
from tools.dev_stack.state import new_state
from tools.schema.replay import PROCESSES, ROOT, replayed_schema, schema_file


def main() -> int:
    """Write the files; return the exit status (1: a migration or a server failed)."""
    try:
        with tempfile.TemporaryDirectory(prefix="tdp_schema_") as folder:
            asyncio.run(_write_all(Path(folder)))
    except TdpError as error:
        sys.stderr.write(f"schema: {error}\n")
        return 1
    return 0


async def _write_all(folder: Path) -> None:
    server = Stack(StackConfig(folder, durable=False), new_state()).postgres
    await server.start()
    try:
        for process in PROCESSES:
            dsn = await server.create_database(process)
            target = schema_file(process)
            target.write_text(await replayed_schema(process, dsn), encoding="utf-8")
            sys.stdout.write(f"schema: wrote {target.relative_to(ROOT)}\n")
    finally:
        await server.stop(immediate=True)


if __name__ == "__main__":
    sys.exit(main())
