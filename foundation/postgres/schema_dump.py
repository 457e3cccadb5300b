"""The schema of a database as stable text, to compare schema.sql with replayed migrations."""

import asyncio
import difflib
import re
from pathlib import Path

from foundation.errors import InternalError

# pg_dump writes a random word into these, and its own version into comments.
_UNSTABLE_LINE = re.compile(r"^(\\(un)?restrict .*|--.*|SET .*|SELECT pg_catalog\.set_config.*)$")


class SchemaDumpError(InternalError):
    """pg_dump could not read the schema."""

    reason = "SCHEMA_DUMP_FAILED"


async def dump_schema(dsn: str, pg_dump: Path, environment: dict[str, str] | None = None) -> str:
    """Return the normalised schema of a database, without the tables of what was migrated."""
    process = await asyncio.create_subprocess_exec(
        str(pg_dump),
        "--schema-only",
        "--no-owner",
        "--no-privileges",
        "--exclude-table=schema_migrations",
        "--exclude-table=schema_digests",
        f"--dbname={dsn}",
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if process.returncode != 0:
        raise SchemaDumpError(f"{pg_dump.name} failed: {errors.decode(errors='replace').strip()}")
    return normalised_schema(output.decode())


def normalised_schema(text: str) -> str:
    """Leave out comments, settings, random words and repeated blank lines."""
    kept = (line.rstrip() for line in text.splitlines() if not _UNSTABLE_LINE.match(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip() + "\n"


def schema_difference(expected: str, actual: str) -> str:
    """Return the differing lines of two schemas, "" when they say the same."""
    lines = difflib.unified_diff(
        normalised_schema(expected).splitlines(),
        normalised_schema(actual).splitlines(),
        "schema.sql",
        "migrations replayed",
        lineterm="",
    )
    return "\n".join(lines)
