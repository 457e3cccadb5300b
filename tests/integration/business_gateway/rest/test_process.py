"""The gateway as a process: its commands, its start without a control plane, its stop."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import aiohttp
import pytest

from tests.fixtures.databases import FreshDatabase, TemplateSource
from tests.integration.business_gateway.gateway import API_KEY, settings_for
from tools.dev_stack import ObjectStoreAccess

_ROOT = Path(__file__).parents[4]
_SECRETS = ("database_dsn", "control_plane_api_key", "provider_secret", "callback_secret_current",
            "s3_secret_key")  # fmt: skip


@pytest.fixture
def environment(
    make_postgres_database: Callable[[TemplateSource | None], FreshDatabase],
    object_store: ObjectStoreAccess,
) -> Mapping[str, str]:
    """The variables of a gateway on an empty database."""
    settings = settings_for(make_postgres_database(None), object_store)
    values = {
        name: getattr(settings, name).get_secret_value()
        if name in _SECRETS
        else getattr(settings, name)
        for name in settings.model_fields_set
    }
    given = {f"TDP_GATEWAY_{name.upper()}": str(value) for name, value in values.items()}
    # A port that nobody serves: the gateway must not need the control plane to start.
    given["TDP_GATEWAY_CONTROL_PLANE_ADDRESS"] = "127.0.0.1:9"
    paths = os.pathsep.join((str(_ROOT), str(_ROOT / "protos" / "gen")))
    return {**os.environ, **given, "PYTHONPATH": paths}


async def _run(command: str, environment: Mapping[str, str]) -> tuple[int, str]:
    process = await _started(command, environment)
    _, output = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def _started(command: str, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "business_gateway", command,
        env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def _ready_ports(process: asyncio.subprocess.Process) -> tuple[int, int]:
    assert process.stderr is not None
    async for line in process.stderr:
        found = json.loads(line)
        if found["event"] == "gateway_ready":
            return found["rest_port"], found["grpc_port"]
    raise AssertionError("the gateway ended before it was ready")


async def test_it_migrates_serves_without_a_control_plane_and_stops(
    environment: Mapping[str, str],
) -> None:
    """Serve refuses an old database; after migrate it accepts work, and SIGTERM ends it well."""
    status, output = await _run("serve", environment)
    assert (status, "MIGRATIONS_PENDING" in output or "lacks 1 migrations" in output) == (1, True)
    assert (await _run("migrate", environment))[0] == 0
    process = await _started("serve", environment)
    try:
        rest_port, grpc_port = await _ready_ports(process)
        assert grpc_port
        headers = {"Authorization": f"Bearer {API_KEY}"}
        async with aiohttp.ClientSession(f"http://127.0.0.1:{rest_port}") as client:
            async with client.get("/healthz") as answer:
                assert answer.status == 200
            async with client.get("/api/v1/orders", headers=headers) as answer:
                assert (await answer.json())["orders"] == []
        process.send_signal(signal.SIGTERM)
        _, output_bytes = await process.communicate()
        assert process.returncode == 0, output_bytes.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_wrong_settings_are_told_before_anything_starts(
    environment: Mapping[str, str],
) -> None:
    """check-config exits with 2 and names the variable, never its value; good ones exit with 0."""
    assert (await _run("check-config", environment))[0] == 0
    wrong = {**environment, "TDP_GATEWAY_PROVIDER_SECRET": "tooshort"}
    status, output = await _run("check-config", wrong)
    assert status == 2
    assert "TDP_GATEWAY_PROVIDER_SECRET" in output
    assert "tooshort" not in output
