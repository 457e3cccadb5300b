"""The embedded PostgreSQL server: made, started, stopped, and brought back after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import asyncpg
import psutil

from tools.dev_stack import ports
from tools.dev_stack.errors import InvalidDatabaseNameError, ServerStartError
from tools.dev_stack.identity import Identity, choose_identity
from tools.dev_stack.processes import ChildProcess, Deadline, Launch, run_to_end, wait_for_end
from tools.dev_stack.programs import postgres_program
from tools.dev_stack.server import NotReadyError, Server
from tools.dev_stack.state import replace_private_file

SUPERUSER: Final = "postgres"
_PROCESS_NAME: Final = "postgres"
_DATABASE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_FAST_STOP_PATIENCE_S: Final = 20.0
_IMMEDIATE_STOP_PATIENCE_S: Final = 10.0

# Few and plain: what production would be given as well, and what loopback demands.
_SETTINGS: Final = {
    "listen_addresses": ports.HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %a %d ",
}
_DURABLE_SETTINGS: Final = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
_FRAGILE_SETTINGS: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PostgresServer(Server):
    """PostgreSQL on loopback with one superuser and a password."""

    name = "PostgreSQL"
    retry_marks = (
        "pre-existing shared memory block",
        'lock file "postmaster.pid" already exists',
        'lock file "postmaster.pid" is empty',
    )

    def __init__(
        self,
        folder: Path,
        log_file: Path,
        *,
        password: str,
        settings: Mapping[str, str],
        durable: bool,
        port: int,
        start_timeout_s: float,
    ) -> None:
        """Take the folder of the cluster and settings that go over the built-in ones."""
        super().__init__(log_file, port=port, start_timeout_s=start_timeout_s)
        self._folder = folder
        self._password = password
        self._durable = durable
        durability = _DURABLE_SETTINGS if durable else _FRAGILE_SETTINGS
        self._settings = {**_SETTINGS, **durability, **settings}
        self._identity = Identity()

    @property
    def data_folder(self) -> Path:
        """The cluster's folder (PGDATA)."""
        return self._folder / "data"

    def dsn(self, database: str) -> str:
        """The URL of a database, with user and password: not for logs."""
        # Without sslmode each connection would first be refused TLS, a round trip for nothing.
        return (
            f"postgresql://{SUPERUSER}:{self._password}@{ports.HOST}:{self.port}/{database}"
            "?sslmode=disable"
        )

    async def create_database(self, name: str) -> str:
        """Make the database if it is missing, and answer its URL.

        Raises:
            InvalidDatabaseNameError: the name would need quoting.
        """
        if not _DATABASE_NAME.fullmatch(name):
            raise InvalidDatabaseNameError(name)
        connection = await asyncpg.connect(self.dsn("postgres"))
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        except asyncpg.DuplicateDatabaseError:
            pass
        finally:
            await connection.close()
        return self.dsn(name)

    async def _prepare(self, deadline: Deadline) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._identity = choose_identity(self._folder, postgres_program("postgres"))
        if self._identity.file_owner is not None:
            os.chown(self._folder, *self._identity.file_owner)
        await self._end_orphans()
        if not (self.data_folder / "PG_VERSION").exists():
            await self._make_cluster(deadline)

    async def _make_cluster(self, deadline: Deadline) -> None:
        """Make the cluster beside its place, so that a crash on the way leaves none in it."""
        draft = self._folder / "data.new"
        await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
        password_file = self._folder / "password"
        replace_private_file(password_file, self._password)
        if self._identity.file_owner is not None:
            os.chown(password_file, *self._identity.file_owner)
        try:
            command = self._initdb_command(draft, password_file)
            status, tail = await run_to_end(self._launch_of(command), deadline.remaining_s)
        finally:
            password_file.unlink(missing_ok=True)
        if status != 0:
            problem = f"initdb ended with status {status}"
            raise ServerStartError(self.name, problem, self.log_file, tail)
        draft.rename(self.data_folder)

    def _initdb_command(self, draft: Path, password_file: Path) -> tuple[str, ...]:
        command = (
            str(postgres_program("initdb")),
            f"--pgdata={draft}",
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            # PostgreSQL's own: the same order of texts on every machine.
            "--locale-provider=builtin",
            "--locale=C",
            "--builtin-locale=C.UTF-8",
        )
        return command if self._durable else (*command, "--no-sync")

    def _launch(self) -> Launch:
        settings = {**self._settings, "port": str(self.port)}
        flags = tuple(f"--{name}={value}" for name, value in settings.items())
        command = (str(postgres_program("postgres")), "-D", str(self.data_folder), *flags)
        return self._launch_of(command)

    def _launch_of(self, command: tuple[str, ...]) -> Launch:
        return Launch(
            command,
            self.log_file,
            # An immediate shutdown: the postmaster takes all its children along.
            death_signal=signal.SIGQUIT,
            environment={"HOME": str(self._folder)},
            identity=self._identity,
        )

    async def _probe(self, process: ChildProcess) -> None:
        if not _says_ready(self.data_folder / "postmaster.pid", process.pid):
            raise NotReadyError("its postmaster.pid does not say ready yet")
        try:
            connection = await asyncpg.connect(self.dsn("postgres"))
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise NotReadyError(str(error)) from error
        await connection.close()

    async def _end(self, process: ChildProcess, *, immediate: bool) -> None:
        children = _descendants(process.pid)
        steps = ((signal.SIGQUIT, _IMMEDIATE_STOP_PATIENCE_S),)
        if immediate:
            await process.end(*steps)
        else:
            await process.end((signal.SIGINT, _FAST_STOP_PATIENCE_S), *steps)
        # After SIGKILL they find out by themselves that their postmaster is gone.
        await asyncio.gather(*(wait_for_end(pid) for pid in children))

    async def _end_orphans(self) -> None:
        """End what is left of an earlier run, and remove a lock file that names a stranger.

        Nobody else can be using the cluster, since the caller holds the folder's lock. After a
        reboot, or in a container, the process id in a stale lock file may belong to anyone, and
        PostgreSQL would wait for that process. A lock file of a dead one it judges itself.
        """
        await asyncio.to_thread(_end_processes, _processes_inside(self.data_folder))
        lock_file = self.data_folder / "postmaster.pid"
        if _names_a_stranger(lock_file):
            lock_file.unlink()


def _says_ready(lock_file: Path, pid: int) -> bool:
    """Whether this very process has written that it takes connections, in the eighth line."""
    try:
        lines = lock_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    return lines[:1] == [str(pid)] and [line.strip() for line in lines[7:8]] == ["ready"]


def _descendants(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _end_processes(processes: list[psutil.Process]) -> None:
    for number in (signal.SIGQUIT, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        _, processes = psutil.wait_procs(processes, _IMMEDIATE_STOP_PATIENCE_S)


def _names_a_stranger(lock_file: Path) -> bool:
    """Whether the lock file's process is alive and is no PostgreSQL."""
    try:
        pid = int(lock_file.read_text().split("\n", 1)[0])
        return psutil.Process(pid).name() != _PROCESS_NAME
    except (OSError, ValueError, psutil.NoSuchProcess):
        return False


def _processes_inside(folder: Path) -> list[psutil.Process]:
    """PostgreSQL's processes that work in `folder`; each of them makes it its own."""
    return [
        process
        for process in psutil.process_iter(["name", "cwd"])
        if process.info["name"] == _PROCESS_NAME and process.info["cwd"] == str(folder)
    ]
