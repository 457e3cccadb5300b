"""Registered capability schemas: fixed by the first node that declares them, kept in memory."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from control_plane.core.nodes.domain import CapabilityDeclaration
from control_plane.core.workflows.errors import DefinitionInvalidError, InputInvalidError
from control_plane.core.workflows.schemas import DocumentSchema
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database

_SQL: Final = NamedSql.load("control_plane.sql.queries", "nodes.sql")

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Registered:
    input_schema: str
    output_schema: str
    output: DocumentSchema | None


class CapabilitySchemas:
    """Implements OutputSchemas; registered schemas never change, so each is read once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[Key, _Registered] = {}

    async def register(
        self, node_id: str, declared: Sequence[CapabilityDeclaration]
    ) -> dict[Key, str]:
        """Register what no node declared before; return why each is refused, empty where not."""
        refusals = {(one.name, one.version): _unusable(one) for one in declared}
        usable = [one for one in declared if not refusals[one.name, one.version]]
        unknown = [one for one in usable if (one.name, one.version) not in self._known]
        if unknown:
            await self._database.fetch(
                _SQL.register_schemas,
                [one.name for one in unknown],
                [one.version for one in unknown],
                [one.input_schema_json for one in unknown],
                [one.output_schema_json for one in unknown],
                node_id,
            )
            await self._load([(one.name, one.version) for one in unknown])
        for one in usable:
            refusals[one.name, one.version] = _difference(one, self._known[one.name, one.version])
        return refusals

    async def problem_of(self, capability: str, version: str, output_json: str) -> str:
        """Return why an output breaks its schema; empty where it does not, or none is known."""
        registered = await self._registered((capability, version))
        try:
            document = json.loads(output_json)
        except ValueError as error:
            return f"the output of {capability} {version} is no JSON: {error}"
        if registered is None or registered.output is None:
            return ""
        try:
            registered.output.check(document, "output")
        except InputInvalidError as error:
            return f"the output breaks the schema of {capability} {version}: {error}"
        return ""

    async def _registered(self, key: Key) -> _Registered | None:
        if key not in self._known:
            await self._load([key])
        return self._known.get(key)

    async def _load(self, keys: Sequence[Key]) -> None:
        rows = await self._database.fetch(
            _SQL.known_schemas, [name for name, _ in keys], [version for _, version in keys]
        )
        for row in rows:
            self._known[row["capability"], row["version"]] = _Registered(
                row["input_schema"], row["output_schema"], _compiled(row["output_schema"])
            )


def _compiled(schema_json: str) -> DocumentSchema | None:
    if not schema_json:
        return None
    return DocumentSchema(json.loads(schema_json))


def _unusable(one: CapabilityDeclaration) -> str:
    try:
        for text in (one.input_schema_json, one.output_schema_json):
            _compiled(text)
    except (DefinitionInvalidError, ValueError, TypeError) as error:
        return f"its schema is no JSON Schema: {error}"
    return ""


def _difference(one: CapabilityDeclaration, registered: _Registered) -> str:
    different = [
        what
        for what, given, known in (
            ("input", one.input_schema_json, registered.input_schema),
            ("output", one.output_schema_json, registered.output_schema),
        )
        if given != known
    ]
    if not different:
        return ""
    return (
        f"its {' and '.join(different)} schema differs from the one first declared for "
        f"{one.name} {one.version}: publish a new version"
    )
