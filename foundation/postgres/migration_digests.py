"""What each applied migration was: its digest, kept in the database that has it."""

import asyncio
import hashlib
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import asyncpg

from foundation.postgres.named_sql import NamedSql

_SQL: Final = NamedSql.load("foundation.postgres", "migration_digests.sql")
_SQLITE_SCHEME: Final = "sqlite:"


def digests_of(folder: Path) -> Mapping[str, str]:
    """Return the SHA-256 of each migration file by its name; line ends count for nothing."""
    return {
        path.name: hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
        for path in sorted(folder.glob("*.sql"))
    }


async def read_digests(url: str) -> Mapping[str, str]:
    """Return what is kept in a database; empty where nothing is, or where there is no file yet."""
    if url.startswith(_SQLITE_SCHEME):
        return await asyncio.to_thread(_read_sqlite, _path(url))
    connection = await asyncpg.connect(url)
    try:
        if not await connection.fetchval(_SQL.table_is_there):
            return {}
        return {row["name"]: row["sha256"] for row in await connection.fetch(_SQL.read_digests)}
    finally:
        await connection.close()


async def keep_digests(url: str, digests: Mapping[str, str]) -> None:
    """Keep the digests of migrations of which none is kept; safe to do at once with others."""
    if url.startswith(_SQLITE_SCHEME):
        await asyncio.to_thread(_keep_sqlite, _path(url), digests)
        return
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(_SQL.take_turns)
            await connection.execute(_SQL.make_table)
            await connection.executemany(_SQL.keep_digest, list(digests.items()))
    finally:
        await connection.close()


def _path(url: str) -> Path:
    return Path(url.removeprefix(_SQLITE_SCHEME))


def _read_sqlite(path: Path) -> Mapping[str, str]:
    if not path.exists():
        return {}
    with closing(sqlite3.connect(path)) as connection:
        (found,) = connection.execute(_SQL.sqlite_table_is_there).fetchone()
        return dict(connection.execute(_SQL.read_digests).fetchall()) if found else {}


def _keep_sqlite(path: Path, digests: Mapping[str, str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(_SQL.make_table)
        connection.executemany(
            _SQL.keep_digest, [{"1": name, "2": digest} for name, digest in digests.items()]
        )
