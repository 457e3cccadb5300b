"""Replays the migrations of a process into an empty database and writes down what they come to."""

from pathlib import Path
from typing import Final

from foundation.postgres.migrations import Migrations
from foundation.postgres.schema_dump import dump_schema
from tools.dev_stack.programs import postgres_program

ROOT: Final = Path(__file__).resolve().parents[2]
PROCESSES: Final = ("business_gateway", "control_plane")
"""The processes with a database in PostgreSQL."""

_HEADER: Final = """\
-- The schema that the migrations of {process} come to, written by `make schema`.
-- For reading: comments and reasons are in the migrations, and nothing ever runs this file.

"""


def migrations_folder(process: str, root: Path = ROOT) -> Path:
    """Return the folder of a process's migrations."""
    return root / process / "sql" / "migrations"


def schema_file(process: str, root: Path = ROOT) -> Path:
    """Return where a process's schema is written down."""
    return root / process / "sql" / "schema.sql"


async def replayed_schema(process: str, dsn: str, root: Path = ROOT) -> str:
    """Migrate the empty database at `dsn` and return the text that schema.sql has to have.

    Raises MigrationError, SchemaDumpError, ProgramMissingError.
    """
    await Migrations(migrations_folder(process, root), dsn).migrate()
    schema = await dump_schema(dsn, postgres_program("pg_dump"))
    return _HEADER.format(process=process) + schema
