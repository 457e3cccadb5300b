"""Opens the journal's file: sets a damaged one aside, and brings it up to this version."""

from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import structlog

from foundation.clock import Clock
from foundation.postgres.migrations import Migrations
from foundation.sqlite.database import LocalDatabase, LocalDatabaseConfig
from foundation.sqlite.errors import LocalDatabaseCorruptError
from node_agent.adapters.outbound.sqlite.journal import SqliteJournal

FILE_NAME: Final = "journal.db"
# SQLite's own companions of the file; they belong to it and move with it.
_SUFFIXES: Final = ("", "-wal", "-shm")
_log = structlog.stdlib.get_logger(__name__)


async def open_journal(folder: Path, clock: Clock, new_id: Callable[[], str]) -> LocalDatabase:
    """Return the open journal of a state folder, made if there is none.

    A damaged file is renamed to `journal.db.corrupt-…` and a new journal begun, which is a new
    incarnation: what the old one held runs out at the server. Raises other LocalDatabaseErrors
    (locked, read-only, disk full) and MigrationError as they are.
    """
    try:
        return await _opened(folder, new_id)
    except LocalDatabaseCorruptError as error:
        aside = _set_aside(folder / FILE_NAME, clock)
        _log.error("journal_corrupt", error=error.message, set_aside=str(aside))
    return await _opened(folder, new_id)


async def _opened(folder: Path, new_id: Callable[[], str]) -> LocalDatabase:
    database = LocalDatabase(LocalDatabaseConfig(folder / FILE_NAME))
    await database.open()
    try:
        await database.check_integrity()
        with as_file(files("node_agent.sql").joinpath("migrations")) as migrations:
            await Migrations.for_sqlite(migrations, database.path).migrate()
        await SqliteJournal(database).create_identity(new_id())
    except BaseException:
        await database.close()
        raise
    database.path.chmod(0o600)
    return database


def _set_aside(path: Path, clock: Clock) -> Path:
    stamp = clock.now().strftime("%Y%m%dT%H%M%S%fZ")
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    for suffix in _SUFFIXES:
        companion = path.with_name(path.name + suffix)
        if companion.exists():
            companion.rename(aside.with_name(aside.name + suffix))
    return aside
