"""What the use cases of applications need of their store."""

from collections.abc import Sequence
from typing import Protocol

from control_plane.core.applications.domain import (
    Application,
    KeyOwner,
    NewApiKey,
    NewApplication,
)
from control_plane.core.idempotency import RequestIdentity


class ApplicationStore(Protocol):
    """Applications, their keys and sealed secrets.

    A method that takes a RequestIdentity answers (id, created): of a replay the first call's
    id and False. It raises IdempotencyKeyReusedError for a key that stands for another
    request, and NotFoundError where the application is unknown.
    """

    async def register(
        self, identity: RequestIdentity, application: NewApplication
    ) -> tuple[str, bool]:
        """Store an application; ApplicationNameTakenError if its name is in use."""
        ...

    async def get(self, application_id: str) -> Application:
        """Read one; NotFoundError."""
        ...

    async def list(self, after_name: str, limit: int) -> Sequence[Application]:
        """Read up to `limit` applications whose name comes after `after_name`, by name."""
        ...

    async def add_key(self, identity: RequestIdentity, key: NewApiKey) -> tuple[str, bool]:
        """Store a key's hash; ApiKeyTakenError if the hash is known."""
        ...

    async def revoke_key(self, identity: RequestIdentity, api_key_id: str) -> tuple[str, bool]:
        """End a key; NotFoundError."""
        ...

    async def set_callback_endpoint(
        self, identity: RequestIdentity, application_id: str, url: str | None, secret: bytes | None
    ) -> tuple[str, bool]:
        """Set URL and sealed secret (None keeps either), and enable the endpoint."""
        ...

    async def set_resource_provider(
        self, identity: RequestIdentity, application_id: str, url: str | None, secret: bytes | None
    ) -> tuple[str, bool]:
        """Set the URL (None keeps it) and the sealed secret (None keeps it)."""
        ...

    async def disable(self, identity: RequestIdentity, application_id: str) -> tuple[str, bool]:
        """Refuse the application's new tasks from now on."""
        ...


class HeldCallbacks(Protocol):
    """Deliveries that are held because their endpoint was switched off."""

    async def release(self, destination: str) -> int:
        """Make the application's held deliveries due at once; return their number."""
        ...


class KeyDirectory(Protocol):
    """Finds out whom a credential speaks for."""

    async def key_owner(self, key_sha256: bytes) -> KeyOwner | None:
        """Return the owner of a key that is neither revoked nor expired, else None."""
        ...

    async def node_of_credential(self, credential_sha256: bytes) -> str | None:
        """Return the id of the node with this credential, else None."""
        ...

    async def ensure_operator(self, api_key_id: str, name: str, key_sha256: bytes) -> None:
        """Store an operator's key with every scope unless its hash is known."""
        ...
