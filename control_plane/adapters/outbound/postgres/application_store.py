"""Applications and keys on PostgreSQL."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from control_plane.adapters.outbound.postgres.idempotency_store import run_once
from control_plane.core.applications.domain import (
    Application,
    KeyOwner,
    NewApiKey,
    NewApplication,
)
from control_plane.core.applications.errors import (
    ApiKeyNotFoundError,
    ApiKeyTakenError,
    ApplicationNameTakenError,
    ApplicationNotFoundError,
)
from control_plane.core.idempotency import RequestIdentity
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Connection, Database, Record

_SQL: Final = NamedSql.load("control_plane.sql.queries", "applications.sql")


class PostgresApplicationStore:
    """Implements ApplicationStore and KeyDirectory."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self, identity: RequestIdentity, application: NewApplication
    ) -> tuple[str, bool]:
        """Store an application; ApplicationNameTakenError if its name is in use."""

        async def insert(connection: Connection) -> None:
            stored = await connection.fetchval(
                _SQL.insert_application,
                application.application_id,
                application.name,
                application.callback_url,
                application.callback_secret,
                application.resource_provider_url,
                application.resource_provider_secret,
            )
            if not stored:
                existing = await connection.fetchval(_SQL.application_of_name, application.name)
                raise ApplicationNameTakenError(
                    f"an application named {application.name!r} exists: choose another name",
                    existing_id=str(existing),
                )

        return await run_once(self._database, identity, application.application_id, insert)

    async def get(self, application_id: str) -> Application:
        """Read one; ApplicationNotFoundError."""
        row = await self._database.fetchrow(_SQL.get_application, application_id)
        if row is None:
            raise _not_found(application_id)
        return _application(row)

    async def list(self, after_name: str, limit: int) -> Sequence[Application]:
        """Read up to `limit` applications whose name comes after `after_name`, by name."""
        rows = await self._database.fetch(_SQL.list_applications, after_name, limit)
        return [_application(row) for row in rows]

    async def add_key(self, identity: RequestIdentity, key: NewApiKey) -> tuple[str, bool]:
        """Store a key's hash; ApiKeyTakenError, ApplicationNotFoundError."""

        async def insert(connection: Connection) -> None:
            if key.application_id is not None:
                row = await connection.fetchrow(_SQL.get_application, key.application_id)
                if row is None:
                    raise _not_found(key.application_id)
            stored = await connection.fetchval(
                _SQL.insert_api_key,
                key.api_key_id,
                key.application_id,
                key.operator_name,
                key.key_sha256,
                list(key.scopes),
                key.expires_at,
            )
            if not stored:
                existing = await connection.fetchval(_SQL.api_key_of_hash, key.key_sha256)
                raise ApiKeyTakenError(
                    "a key with this hash is registered: make a new random key",
                    existing_id=str(existing),
                )

        return await run_once(self._database, identity, key.api_key_id, insert)

    async def revoke_key(self, identity: RequestIdentity, api_key_id: str) -> tuple[str, bool]:
        """End a key; ApiKeyNotFoundError."""

        async def revoke(connection: Connection) -> None:
            if not await connection.fetchval(_SQL.revoke_api_key, api_key_id):
                raise ApiKeyNotFoundError(f"there is no API key {api_key_id}: check its id")

        return await run_once(self._database, identity, api_key_id, revoke)

    async def set_callback_endpoint(
        self, identity: RequestIdentity, application_id: str, url: str | None, secret: bytes | None
    ) -> tuple[str, bool]:
        """Set URL and sealed secret (None keeps either), and enable the endpoint."""
        change = self._update(_SQL.set_callback_endpoint, application_id, url, secret)
        return await run_once(self._database, identity, application_id, change)

    async def set_resource_provider(
        self, identity: RequestIdentity, application_id: str, url: str | None, secret: bytes | None
    ) -> tuple[str, bool]:
        """Set the URL (None keeps it) and the sealed secret (None keeps it)."""
        change = self._update(_SQL.set_resource_provider, application_id, url, secret)
        return await run_once(self._database, identity, application_id, change)

    async def disable(self, identity: RequestIdentity, application_id: str) -> tuple[str, bool]:
        """Refuse the application's new tasks from now on."""
        change = self._update(_SQL.disable_application, application_id)
        return await run_once(self._database, identity, application_id, change)

    async def key_owner(self, key_sha256: bytes) -> KeyOwner | None:
        """Return the owner of a key that is neither revoked nor expired, else None."""
        row = await self._database.fetchrow(_SQL.key_owner, key_sha256)
        if row is None:
            return None
        return KeyOwner(row["application_id"], row["operator_name"], tuple(row["scopes"]))

    async def node_of_credential(self, credential_sha256: bytes) -> str | None:
        """Return the id of the node with this credential, else None."""
        row = await self._database.fetchrow(_SQL.node_of_credential, credential_sha256)
        return None if row is None else str(row["node_id"])

    async def ensure_operator(self, api_key_id: str, name: str, key_sha256: bytes) -> None:
        """Store an operator's key with every scope unless its hash is known."""
        await self._database.fetch(_SQL.ensure_operator, api_key_id, name, key_sha256)

    def _update(
        self, statement: str, application_id: str, *values: object
    ) -> Callable[[Connection], Awaitable[None]]:
        async def update(connection: Connection) -> None:
            if not await connection.fetchval(statement, application_id, *values):
                raise _not_found(application_id)

        return update


def _not_found(application_id: str) -> ApplicationNotFoundError:
    return ApplicationNotFoundError(f"there is no application {application_id}: check its id")


def _application(row: Record) -> Application:
    return Application(
        application_id=row["application_id"],
        name=row["name"],
        callback_url=row["callback_url"],
        callback_disabled=row["callback_disabled"],
        resource_provider_url=row["resource_provider_url"],
        disabled=row["disabled"],
        created_at=row["created_at"],
    )
