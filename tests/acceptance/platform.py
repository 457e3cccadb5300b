"""What acceptance tests do with a running platform: order, wait, kill, look at the evidence."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import uuid
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

from tdp.control.v1 import task_pb2, task_service_pb2_grpc
from tdp.control.v1 import task_service_pb2 as tasks
from tools.cli import journey
from tools.cli.connection import Connection, ControlPlane
from tools.cli.gateway_client import GatewayClient
from tools.cli.journey import Document
from tools.cli.stack_runner import connection_of
from tools.dev_stack.platform import Platform
from tools.dev_stack.platform_process import PlatformProcess

NOOP_FILE: Final = Path(__file__).with_name("noop.yaml")
ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE_S: Final = 45.0
SETTLING_S: Final = 20.0
LOOK_PERIOD_S: Final = 0.2
KILLED: Final = -9


@dataclass(frozen=True, slots=True)
class Finished:
    """What a `tdp` command answered."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Document:
        """The last JSON document on standard output."""
        document: Document = json.loads(self.stdout.splitlines()[-1])
        return document


class World:
    """A running platform and its clients."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        self.folder = folder
        self.connection: Connection = connection_of(platform)

    @property
    def client_environment(self) -> Mapping[str, str]:
        """Where `tdp` finds this platform."""
        return {
            "TDP_CLI_GATEWAY_URL": self.connection.gateway_url,
            "TDP_CLI_GATEWAY_KEY": self.connection.gateway_key,
            "TDP_CLI_CONTROL_TARGET": self.connection.control_target,
            "TDP_CLI_CONTROL_KEY": self.connection.control_key,
        }

    async def mend(self) -> None:
        """Start again, plainly, what was killed."""
        for process in self.platform.processes:
            if not process.is_running:
                await process.start()

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[GatewayClient]:
        """A client of the gateway."""
        async with GatewayClient(*self.connection.gateway()) as client:
            yield client

    @asynccontextmanager
    async def control(self, key: str | None = None) -> AsyncIterator[ControlPlane]:
        """A client of the control plane: the operator, or who the key belongs to."""
        connection = Connection(
            control_target=self.platform.control_target(),
            control_key=self.platform.admin_key if key is None else key,
        )
        async with connection.control() as control:
            yield control

    async def upload(self, client: GatewayClient, data: bytes) -> str:
        """Upload an archive; answer the asset's id."""
        path = self.folder / f"{uuid.uuid4()}.zip"
        path.write_bytes(data)
        return await journey.upload(client, path)

    async def place(
        self, client: GatewayClient, asset_id: str, text: str = "", key: str | None = None
    ) -> Document:
        """Create an order."""
        draft = journey.OrderDraft("acceptance", text, asset_id, key or unique("order"))
        return await journey.place(client, draft)

    async def finished(
        self, client: GatewayClient, order_id: str, patience_s: float = PATIENCE_S
    ) -> Document:
        """Wait for the order's final status, told by its live events."""
        async with asyncio.timeout(patience_s):
            async for _change in journey.changes(client, order_id):
                pass
        return await journey.get_order(client, order_id)

    async def dies(self, process: PlatformProcess) -> None:
        """Wait until the process has been killed."""
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait_for_end() == KILLED, process.log_tail()

    async def tdp(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Finished:
        """Run a `tdp` command against this platform."""
        known = self.client_environment
        return await run_tdp(*arguments, environment={**known, **(environment or {})})


async def run_tdp(*arguments: str, environment: Mapping[str, str]) -> Finished:
    """Run a `tdp` command to its end."""
    code = "from tools.cli.main import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        *arguments,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'protos/gen'}",
            # Wide enough for no word of a table to be broken.
            "COLUMNS": "200",
            **environment,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return Finished(process.returncode, stdout.decode(), stderr.decode())


def unique(prefix: str) -> str:
    """A name or key that nothing else uses."""
    return f"{prefix}-{uuid.uuid4()}"


def tiny_zip(files: Mapping[str, bytes] | None = None) -> bytes:
    """A ZIP with one small JPEG, one text and one piece of junk, or with these files."""
    chosen = files or {"a.jpg": tiny_jpeg(), "notes.txt": b"hello", ".DS_Store": b"junk"}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in chosen.items():
            archive.writestr(name, content)
    return data.getvalue()


def tiny_jpeg() -> bytes:
    """A JPEG of 96 by 64 pixels."""
    data = io.BytesIO()
    Image.new("RGB", (96, 64), (200, 120, 40)).save(data, "JPEG")
    return data.getvalue()


async def tasks_of(control: ControlPlane, where: str) -> list[task_pb2.Task]:
    """All tasks that a filter matches."""
    stub = task_service_pb2_grpc.TaskServiceStub(control.channel)
    found: list[task_pb2.Task] = []
    token = ""
    while True:
        request = tasks.ListTasksRequest(filter=where, page_size=500, page_token=token)
        answer = await control.ask(stub.ListTasks, request)
        found.extend(answer.tasks)
        token = answer.next_page_token
        if not token:
            return found


async def attempts_of(control: ControlPlane, execution_id: str) -> Sequence[task_pb2.Attempt]:
    """All attempts of an execution."""
    stub = task_service_pb2_grpc.TaskServiceStub(control.channel)
    request = tasks.ListAttemptsRequest(execution_id=execution_id, page_size=1000)
    return (await control.ask(stub.ListAttempts, request)).attempts


async def command_published(client: GatewayClient, order_id: str) -> None:
    """Wait until the order's command is marked: until then it may be submitted once more."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            ladder = await journey.get_evidence(client, order_id)
            if "PUBLISHED" in ladder["rungs"][0]["summary"]:
                return
            await asyncio.sleep(LOOK_PERIOD_S)


async def check_done_once(world: World, client: GatewayClient, order: Document) -> Document:
    """Assert that an order is complete and was done once; answer its evidence."""
    assert order["status"] == "COMPLETED", order
    await command_published(client, order["order_id"])
    async with world.control() as control:
        known = await tasks_of(control, f'external_ref = "{order["order_id"]}"')
        assert [one.task_id for one in known] == [order["task_id"]]
        execution = known[0].current_execution
        assert execution.run == 1
        attempts = await attempts_of(control, execution.execution_id)
    succeeded = [
        one.step_key for one in attempts if one.status == task_pb2.ATTEMPT_STATUS_SUCCEEDED
    ]
    assert len(succeeded) == len(set(succeeded)), "a step has two accepted results"
    artifacts = await journey.list_artifacts(client, order["order_id"])
    paths = [one["relative_path"] for one in artifacts]
    assert len(paths) == len(set(paths)), "a path has two committed artifacts"
    ladder = await journey.settled_evidence(client, order["order_id"], SETTLING_S)
    assert [rung["hop"] for rung in ladder["rungs"]] == list(range(1, 11))
    assert {rung["state"] for rung in ladder["rungs"]} == {"DURABLE"}, ladder
    return ladder


def disturbances(ladder: Document) -> set[tuple[int, str]]:
    """The hop and kind of each disturbance that the evidence shows."""
    return {(rung["hop"], one["kind"]) for rung in ladder["rungs"] for one in rung["disturbances"]}


async def first_attempt_is_lost(control: ControlPlane, execution_id: str) -> None:
    """Wait until the control plane has given the attempt up; no event tells of it."""
    async with asyncio.timeout(PATIENCE_S):
        status = task_pb2.ATTEMPT_STATUS_UNSPECIFIED
        while status != task_pb2.ATTEMPT_STATUS_LOST:
            await asyncio.sleep(LOOK_PERIOD_S)
            status = (await attempts_of(control, execution_id))[0].status
