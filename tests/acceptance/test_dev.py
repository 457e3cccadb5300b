"""`tdp dev`: runs until it is told to stop, keeps its data, and survives a kill -9 of itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.acceptance.platform import PATIENCE_S, ROOT, run_tdp, tiny_zip
from tools.dev_stack.processes import wait_for_end

# For machines that do much else; alone it takes a fraction.
pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, slots=True)
class Dev:
    """A running `tdp dev`, and what it said."""

    process: asyncio.subprocess.Process
    said: dict[str, Any]

    @property
    def environment(self) -> Mapping[str, str]:
        return {"TDP_CLI_CONTEXT": self.said["context"]}

    async def ends(self, number: signal.Signals) -> tuple[int, str]:
        """Signal it; answer its exit status and errors, once all its processes have ended."""
        self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> tuple[int, str]:
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            errors = await self.process.stderr.read()
            status = await self.process.wait()
            for pid in self.said["processes"].values():
                await wait_for_end(pid)
        return status, errors.decode()


@asynccontextmanager
async def dev(data: Path) -> AsyncIterator[Dev]:
    """Start `tdp dev` and wait until it says that all runs."""
    code = "from tools.cli.main import main; main()"
    arguments = ("dev", "--data", str(data), "--agents", "1", "--json")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        *arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'protos/gen'}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        assert line, await process.communicate()
        yield Dev(process, json.loads(line))
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


async def fetched(url: str) -> dict[str, Any]:
    """GET a JSON document, as a newcomer would who follows what is printed."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        response.raise_for_status()
        document: dict[str, Any] = await response.json()
        return document


async def test_data_outlives_the_stack(tmp_path: Path) -> None:
    """Keys, ports and orders outlive a kill -9 and an interrupt; a dead child ends the stack."""
    archive = tmp_path / "tiny.zip"
    archive.write_bytes(tiny_zip())
    async with dev(tmp_path / "data") as first:
        assert (await fetched(first.said["api_description_url"]))["openapi"].startswith("3.1")
        ordered = await run_tdp(
            "order", "create", str(archive), "--json", environment=first.environment
        )
        assert ordered.status == 0, ordered.stderr
        status, _ = await first.ends(signal.SIGKILL)
        assert status == -signal.SIGKILL
    order_id = ordered.document["order_id"]
    async with dev(tmp_path / "data") as second:
        for name in ("gateway_api_key", "gateway_url", "control_plane_target"):
            assert second.said[name] == first.said[name]
        watched = await run_tdp("order", "watch", order_id, environment=second.environment)
        assert watched.status == 0, watched.stderr
        os.kill(second.said["processes"]["agent-1"], signal.SIGKILL)
        status, errors = await second.ended()
        assert status == 1
        assert "agent-1 ended with status -9" in errors
    async with dev(tmp_path / "data") as third:
        shown = await run_tdp("evidence", order_id, environment=third.environment)
        assert "Verdict: Finished" in shown.stdout
        status, errors = await third.ends(signal.SIGINT)
        assert status == 0, errors
