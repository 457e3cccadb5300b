"""The three servers together: one folder, one lock, one start and one stop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.dev_stack.nats import NatsLimits, NatsServer
from tools.dev_stack.object_store import ObjectStoreAccess, ObjectStoreServer
from tools.dev_stack.postgres import PostgresServer
from tools.dev_stack.processes import uninterrupted
from tools.dev_stack.server import Server
from tools.dev_stack.state import StackState, folder_lock, load_state, save_state

_FOLDER_MODE_OF_ROOT: Final = 0o711
"""Others may pass, since PostgreSQL is then another user; they may not look."""


@dataclass(frozen=True, slots=True)
class StackConfig:
    """How to run the servers.

    `data_folder` holds everything they keep, and is made if missing. `bucket` is made in S3.
    `durable=False` is for tests only: commits may be lost if the machine (not the process)
    stops. `postgres_settings` go over the built-in ones, by PostgreSQL's names.
    """

    data_folder: Path
    bucket: str = "tdp"
    region: str = "us-east-1"
    durable: bool = True
    postgres_settings: Mapping[str, str] = field(default_factory=dict)
    nats_limits: NatsLimits = field(default_factory=NatsLimits)
    start_timeout_s: float = 60.0


class Stack:
    """Handles of the three servers and what their clients need to know."""

    def __init__(self, config: StackConfig, state: StackState) -> None:
        """Describe the servers; nothing runs yet."""
        self._folder = config.data_folder.resolve()
        self._state = state
        self.postgres = self._postgres_server(config)
        self.nats = self._nats_server(config)
        self.object_store = self._object_store_server(config)

    @property
    def servers(self) -> tuple[Server, Server, Server]:
        """All three, in the order in which they are named everywhere."""
        return (self.postgres, self.nats, self.object_store)

    @property
    def nats_url(self) -> str:
        """Where NATS clients connect, with user and password: not for logs."""
        return self.nats.url

    @property
    def s3(self) -> ObjectStoreAccess:
        """What S3 clients need."""
        return self.object_store.access

    def postgres_dsn(self, database: str) -> str:
        """The URL of a database, with user and password: not for logs."""
        return self.postgres.dsn(database)

    async def create_database(self, name: str) -> str:
        """Make the database if it is missing, and answer its URL."""
        return await self.postgres.create_database(name)

    async def start(self) -> None:
        """Start all, and remember their ports for the next time.

        Raises:
            ServerStartError: one of them did not come up; the others are stopped again.
        """
        try:
            await _all_of([server.start() for server in self.servers])
        except BaseException:
            await self.stop(immediate=True)
            raise
        self._state = dataclasses.replace(
            self._state,
            postgres_port=self.postgres.port,
            nats_port=self.nats.port,
            s3_port=self.object_store.port,
        )
        save_state(self._folder, self._state)

    async def stop(self, *, immediate: bool = False) -> None:
        """Stop all; idempotent, returns when every process has ended."""
        await asyncio.gather(*(server.stop(immediate=immediate) for server in self.servers))

    async def wait_for_crash(self) -> str:
        """Wait until a server ends that nobody asked to; answer which and its log's end."""
        tasks = [
            asyncio.create_task(server.wait_for_crash(), name=f"crash of {server.name}")
            for server in self.servers
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _postgres_server(self, config: StackConfig) -> PostgresServer:
        return PostgresServer(
            self._folder / "postgres",
            self._folder / "logs" / "postgres.log",
            password=self._state.postgres_password,
            settings=config.postgres_settings,
            durable=config.durable,
            port=self._state.postgres_port,
            start_timeout_s=config.start_timeout_s,
        )

    def _nats_server(self, config: StackConfig) -> NatsServer:
        return NatsServer(
            self._folder / "nats",
            self._folder / "logs" / "nats.log",
            password=self._state.nats_password,
            limits=config.nats_limits,
            durable=config.durable,
            port=self._state.nats_port,
            start_timeout_s=config.start_timeout_s,
        )

    def _object_store_server(self, config: StackConfig) -> ObjectStoreServer:
        access = ObjectStoreAccess(
            endpoint_url="",
            access_key=self._state.s3_access_key,
            secret_key=self._state.s3_secret_key,
            region=config.region,
            bucket=config.bucket,
        )
        return ObjectStoreServer(
            self._folder / "s3",
            self._folder / "logs" / "s3.log",
            access=access,
            port=self._state.s3_port,
            start_timeout_s=config.start_timeout_s,
        )


@contextlib.asynccontextmanager
async def running_stack(config: StackConfig) -> AsyncIterator[Stack]:
    """Run the three servers of a folder until the block ends, then stop them in order.

    A second run on the same folder finds the data, and the same ports where they are free.

    Raises:
        FolderInUseError: another process runs the servers of this folder.
        ServerStartError: a server did not come up; carries the end of its log.
        DevStackError: the other reasons of errors.py.
    """
    folder = config.data_folder.resolve()
    _make_folder(folder)
    with folder_lock(folder):
        stack = Stack(config, load_state(folder))
        try:
            await stack.start()
            yield stack
        finally:
            await uninterrupted(stack.stop())


async def _all_of(starts: Sequence[Awaitable[None]]) -> None:
    """Await all, also if one fails, so that none is left half started; raise the first error."""
    for outcome in await asyncio.gather(*starts, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True)
        if os.geteuid() == 0:
            folder.chmod(_FOLDER_MODE_OF_ROOT)
