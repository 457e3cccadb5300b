"""The embedded servers start, keep their data, come back after kills, and never outlive us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aioboto3
import asyncpg
import nats
import psutil
import pytest
from botocore.config import Config

from tools.dev_stack import Server, Stack, StackConfig, running_stack
from tools.dev_stack.errors import (
    FolderInUseError,
    InvalidDatabaseNameError,
    ServerNotRunningError,
    ServerStartError,
    StateFileError,
)
from tools.dev_stack.identity import choose_identity
from tools.dev_stack.ports import HOST
from tools.dev_stack.processes import ChildProcess, Launch, run_to_end
from tools.dev_stack.programs import postgres_program
from tools.dev_stack.state import new_state

SERVERS = ["postgres", "nats", "object_store"]


def server_of(stack: Stack, name: str) -> Server:
    server = getattr(stack, name)
    assert isinstance(server, Server)
    return server


def s3_client(stack: Stack) -> contextlib.AbstractAsyncContextManager[object]:
    access = stack.s3
    client: contextlib.AbstractAsyncContextManager[object] = aioboto3.Session().client(
        "s3",
        endpoint_url=access.endpoint_url,
        aws_access_key_id=access.access_key,
        aws_secret_access_key=access.secret_key,
        region_name=access.region,
        config=Config(s3={"addressing_style": "path"}),
    )
    return client


@contextlib.asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def write_everywhere(stack: Stack) -> None:
    async with connected(await stack.create_database("kept")) as connection:
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS value")
    client = await nats.connect(stack.nats_url)
    await client.jetstream().add_stream(name="kept", subjects=["kept"])
    await client.jetstream().publish("kept", b"42")
    await client.close()
    async with s3_client(stack) as s3:
        await s3.put_object(Bucket=stack.s3.bucket, Key="kept", Body=b"42")  # type: ignore[attr-defined] # the client's methods are made at run time


async def read_everywhere(stack: Stack) -> list[str]:
    async with connected(stack.postgres_dsn("kept")) as connection:
        row = await connection.fetchval("SELECT value FROM kept")
    client = await nats.connect(stack.nats_url)
    message = await client.jetstream().get_msg("kept", seq=1)
    await client.close()
    async with s3_client(stack) as s3:
        answer = await s3.get_object(Bucket=stack.s3.bucket, Key="kept")  # type: ignore[attr-defined] # the client's methods are made at run time
        content = await answer["Body"].read()
    return [str(row), (message.data or b"").decode(), content.decode()]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def ports_of(stack: Stack) -> list[int]:
    return [server.port for server in stack.servers]


async def test_data_and_ports_are_found_again(tmp_path: Path) -> None:
    """A second start on a folder has the data and the ports of the first; a stop leaves nothing."""
    before = children()
    async with running_stack(StackConfig(tmp_path)) as stack:
        await write_everywhere(stack)
        ports = ports_of(stack)
        started = children() - before
    assert len(started) > len(SERVERS)
    assert children() == before
    async with running_stack(StackConfig(tmp_path)) as stack:
        assert await read_everywhere(stack) == ["42", "42", "42"]
        assert ports_of(stack) == ports


async def test_each_server_recovers_from_kill_9(tmp_path: Path) -> None:
    """What was written is there after SIGKILL and a restart, on the same ports."""
    async with running_stack(StackConfig(tmp_path)) as stack:
        await write_everywhere(stack)
        ports = ports_of(stack)
        for server in stack.servers:
            killed_pid = server.pid
            await server.kill()
            assert not server.is_running
            await server.restart()
            assert server.pid != killed_pid
        assert await read_everywhere(stack) == ["42", "42", "42"]
        assert ports_of(stack) == ports


async def test_servers_are_durable_unless_told_otherwise(tmp_path: Path) -> None:
    """PostgreSQL flushes each commit; settings of the caller go over the built-in ones."""
    config = StackConfig(tmp_path, postgres_settings={"work_mem": "5MB"})
    async with running_stack(config) as stack, connected(stack.postgres_dsn("postgres")) as one:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await one.fetchval("SELECT current_setting($1)", name) == "on"
        assert await one.fetchval("SHOW work_mem") == "5MB"
        assert "sync_interval: always" in (tmp_path / "nats" / "nats.conf").read_text()


async def test_two_stacks_run_side_by_side(tmp_path: Path) -> None:
    """Two folders are two stacks with ports of their own and separate data."""
    first = StackConfig(tmp_path / "first", durable=False)
    second = StackConfig(tmp_path / "second", durable=False)
    async with running_stack(first) as one, running_stack(second) as two:
        assert not set(ports_of(one)) & set(ports_of(two))
        await write_everywhere(one)
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await asyncpg.connect(two.postgres_dsn("kept"))


async def test_a_folder_has_one_runner(tmp_path: Path) -> None:
    """A second run on a folder in use is refused and does not disturb the first."""
    async with running_stack(StackConfig(tmp_path, durable=False)) as stack:
        with pytest.raises(FolderInUseError, match=str(tmp_path)):
            async with running_stack(StackConfig(tmp_path)):
                pass
        await stack.create_database("still_there")


async def test_a_taken_port_is_left_to_its_owner(tmp_path: Path) -> None:
    """Where a stranger listens on the remembered ports, others are chosen."""
    config = StackConfig(tmp_path, durable=False)
    async with running_stack(config) as stack:
        ports = ports_of(stack)
    with contextlib.ExitStack() as strangers:
        for port in ports:
            strangers.enter_context(socket.create_server((HOST, port)))
        async with running_stack(config) as stack:
            assert not set(ports_of(stack)) & set(ports)
            await write_everywhere(stack)


@contextlib.asynccontextmanager
async def stranger_who_says(answer: bytes) -> AsyncIterator[int]:
    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(say, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("postgres", b"N"),
        ("nats", b'INFO {"jetstream":true}\r\nPONG\r\n'),
        ("object_store", b"HTTP/1.1 403 Forbidden\r\n\r\n"),
    ],
)
async def test_a_port_lost_at_the_last_moment_is_replaced(
    tmp_path: Path, name: str, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose port is taken just before its bind gets another; no stranger passes for it."""
    async with stranger_who_says(answer) as taken:
        monkeypatch.setattr("tools.dev_stack.ports.is_free", lambda _port: True)
        monkeypatch.setattr(Stack, "start", start_only(name, taken))
        async with running_stack(StackConfig(tmp_path, durable=False)) as stack:
            assert server_of(stack, name).is_running
            assert server_of(stack, name).port != taken


def start_only(name: str, port: int) -> object:
    async def start(stack: Stack) -> None:
        server = server_of(stack, name)
        server.port = port
        await server.start()

    return start


async def test_a_start_error_carries_the_log(tmp_path: Path) -> None:
    """A server that does not come up is reported with the reason from its log; none is left."""
    before = children()
    config = StackConfig(tmp_path, postgres_settings={"shared_buffers": "many"})
    with pytest.raises(ServerStartError, match=r"(?s)PostgreSQL.*shared_buffers") as raised:
        async with running_stack(config):
            pass
    assert str(tmp_path / "logs" / "postgres.log") in str(raised.value)
    assert children() == before


async def test_a_server_that_is_never_ready_runs_out_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent server is ended after the time allowed for its start."""
    before = children()
    silent = Launch((os.path.realpath("/bin/sleep"), "600"), tmp_path / "silent.log")
    monkeypatch.setattr("tools.dev_stack.nats.NatsServer._launch", lambda _self: silent)
    monkeypatch.setattr(Stack, "start", start_only("nats", 0))
    config = StackConfig(tmp_path, durable=False, start_timeout_s=0.3)
    with pytest.raises(ServerStartError, match="NATS did not start: it is not ready after"):
        async with running_stack(config):
            pass
    assert children() == before


async def test_a_cancelled_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling in the middle of the first start ends what was started, and a new one works."""
    before = children()
    initdb_begins = asyncio.Event()

    async def announced_run_to_end(launch: Launch, timeout_s: float) -> tuple[int | None, str]:
        initdb_begins.set()
        return await run_to_end(launch, timeout_s)

    monkeypatch.setattr("tools.dev_stack.postgres.run_to_end", announced_run_to_end)

    async def run() -> None:
        async with running_stack(StackConfig(tmp_path, durable=False)):
            pass

    task = asyncio.create_task(run(), name="start")
    await initdb_begins.wait()
    assert len(children()) > len(before)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == before
    await run()


async def test_a_lock_file_may_name_a_stranger(tmp_path: Path) -> None:
    """A stale postmaster.pid whose number another program got does not stop the start."""
    config = StackConfig(tmp_path, durable=False)
    async with running_stack(config):
        lock_file = tmp_path / "postgres" / "data" / "postmaster.pid"
        lines = lock_file.read_text().splitlines()
    identity = choose_identity(tmp_path / "postgres", postgres_program("postgres"))
    log_file = tmp_path / "stranger.log"
    command = (os.path.realpath("/bin/sleep"), "600")
    stranger = ChildProcess(Launch(command, log_file, identity=identity))
    lock_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
    try:
        async with running_stack(config) as stack:
            assert stack.postgres.is_running
            assert stranger.exit_status is None
    finally:
        await stranger.end()


@pytest.mark.parametrize("name", SERVERS)
async def test_a_crash_is_reported(tmp_path: Path, name: str) -> None:
    """Whoever watches the stack learns which server ended without being asked to."""
    async with running_stack(StackConfig(tmp_path, durable=False)) as stack:
        watch = asyncio.create_task(stack.wait_for_crash(), name="watch")
        server = server_of(stack, name)
        os.kill(server.pid, 9)
        assert f"{server.name} ended with status -9" in await watch


async def test_stopping_is_idempotent(tmp_path: Path) -> None:
    """Stopping before the start, twice, or at once is fine; a stopped server has no pid."""
    async with running_stack(StackConfig(tmp_path, durable=False)) as stack:
        server = stack.nats
        await server.start()
        await server.stop(immediate=True)
        await server.stop()
        with pytest.raises(ServerNotRunningError, match="NATS"):
            _ = server.pid


@pytest.mark.parametrize("name", ["", "Upper", "with space", "1st", "x" * 64, 'a";drop'])
async def test_database_names_are_checked(tmp_path: Path, name: str) -> None:
    """A name that would need quoting is refused before any server is asked."""
    with pytest.raises(InvalidDatabaseNameError):
        await Stack(StackConfig(tmp_path), new_state()).create_database(name)


async def test_an_unreadable_state_is_refused(tmp_path: Path) -> None:
    """A damaged state file is named, instead of being replaced by new secrets."""
    (tmp_path / "stack.json").write_text('{"postgres_password": 1')
    with pytest.raises(StateFileError, match=r"stack\.json"):
        async with running_stack(StackConfig(tmp_path)):
            pass
