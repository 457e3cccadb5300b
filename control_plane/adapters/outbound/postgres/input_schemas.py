"""What capabilities take, by their registered schemas; each is read and compiled once."""

import json
from collections.abc import Iterable
from typing import Final

from control_plane.core.errors import DocumentInvalidError
from control_plane.core.expressions.values import from_json
from control_plane.core.workflows.errors import InputInvalidError
from control_plane.core.workflows.schemas import DocumentSchema
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection

_SQL: Final = NamedSql.load("control_plane.sql.queries", "scheduling.sql")


class InputSchemas:
    """Registered schemas never change, so they are kept for as long as the process lives."""

    def __init__(self) -> None:
        """Start without any."""
        self._known: dict[tuple[str, str], DocumentSchema | None] = {}

    async def load(self, connection: Connection, offered: Iterable[tuple[str, str]]) -> None:
        """Read the schemas of these capabilities, as far as they are registered."""
        missing = sorted(set(offered) - self._known.keys())
        if not missing:
            return
        rows = await connection.fetch(
            _SQL.read_input_schemas, [name for name, _ in missing], [one for _, one in missing]
        )
        for row in rows:
            self._known[row["capability"], row["version"]] = _compiled(row["input_schema"])

    def problem_of(self, capability: str, version: str, input_json: str) -> str:
        """Return why an input breaks its schema; empty where it does not, or none is known."""
        schema = self._known.get((capability, version))
        if schema is None:
            return ""
        try:
            schema.check(from_json(input_json), "input")
        except (InputInvalidError, DocumentInvalidError) as error:
            return f"the input breaks the schema of {capability} {version}: {error}"
        return ""


def _compiled(schema_json: str) -> DocumentSchema | None:
    schema = json.loads(schema_json) if schema_json else None
    return DocumentSchema(schema) if schema else None
