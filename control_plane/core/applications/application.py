"""The use cases of applications: register, read, keys, endpoints, disabling."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from control_plane.core.applications.domain import (
    Application,
    NewApiKey,
    NewApplication,
    checked_name,
    checked_secret,
)
from control_plane.core.applications.endpoints import (
    CALLBACK_SCHEMES,
    PROVIDER_SCHEMES,
    EndpointPolicy,
    check_endpoint,
)
from control_plane.core.applications.errors import ApplicationNotFoundError
from control_plane.core.applications.ports import ApplicationStore, HeldCallbacks
from control_plane.core.idempotency import RequestIdentity, request_identity
from foundation.canonical_json import FieldValue, request_hash
from foundation.errors import InvalidArgumentError
from foundation.ids import IdSource, parse_id
from foundation.principals import Principal, PrincipalKind, Scope
from foundation.secrets import KeyRing, SecretPlace, hash_token, parse_token_hash

SCOPES: Final = frozenset(scope.value for scope in Scope)


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """A new URL (None keeps it) and a new secret (empty keeps it)."""

    url: str | None
    secret: bytes


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One of an application's two endpoints: its fields and the schemes that its URL may have."""

    url_field: str
    secret_field: str
    schemes: tuple[str, ...]

    def secret_place(self, application_id: str) -> SecretPlace:
        """Return where the endpoint's secret is sealed to."""
        return SecretPlace("applications", self.secret_field, application_id, application_id)


_CALLBACK = _Endpoint("callback_url", "callback_secret", CALLBACK_SCHEMES)
_PROVIDER = _Endpoint("resource_provider_url", "resource_provider_secret", PROVIDER_SCHEMES)


class Applications:
    """What an operator does with applications; an application may read itself."""

    def __init__(
        self,
        store: ApplicationStore,
        held: HeldCallbacks,
        keys: KeyRing,
        ids: IdSource,
        policy: EndpointPolicy,
    ) -> None:
        self._store = store
        self._held = held
        self._keys = keys
        self._ids = ids
        self._policy = policy

    async def register(
        self,
        principal: Principal,
        idempotency_key: str,
        name: str,
        callback: EndpointChange,
        provider: EndpointChange,
    ) -> tuple[Application, bool]:
        """Register an application; ApplicationNameTakenError, IdempotencyKeyReusedError."""
        identity = self._identity(
            principal,
            "RegisterApplication",
            idempotency_key,
            name=name,
            callback_url=callback.url or "",
            callback_secret=hash_token(callback.secret.hex()),
            provider_url=provider.url or "",
            provider_secret=hash_token(provider.secret.hex()),
        )
        application_id = self._ids.new_id()
        application = NewApplication(
            application_id=application_id,
            name=checked_name(name, "name"),
            callback_url=self._url(_CALLBACK, callback.url or ""),
            callback_secret=self._sealed(
                _CALLBACK, application_id, callback.secret, needed=bool(callback.url)
            ),
            resource_provider_url=self._url(_PROVIDER, provider.url or ""),
            resource_provider_secret=self._sealed(
                _PROVIDER, application_id, provider.secret, needed=bool(provider.url)
            ),
        )
        stored_id, created = await self._store.register(identity, application)
        return await self._store.get(stored_id), created

    async def get(self, principal: Principal, application_id: str) -> Application:
        """Read one application; another's is ApplicationNotFoundError."""
        principal.require_scope(Scope.READ)
        wanted = parse_id(application_id, "application_id")
        if principal.kind is not PrincipalKind.OPERATOR and principal.id != wanted:
            raise ApplicationNotFoundError(f"there is no application {wanted}: check its id")
        return await self._store.get(wanted)

    async def list(
        self, principal: Principal, after_name: str, limit: int
    ) -> Sequence[Application]:
        """Read a page of applications by name; operators only."""
        principal.require_kind(PrincipalKind.OPERATOR)
        principal.require_scope(Scope.READ)
        return await self._store.list(after_name, limit)

    async def create_key(
        self,
        principal: Principal,
        idempotency_key: str,
        owner: tuple[str, str],
        key_sha256: bytes,
        scopes: Sequence[str],
        expires_at: datetime | None,
    ) -> tuple[str, bool]:
        """Register a key's hash for `owner` (application id, operator name: one is empty)."""
        application_id, operator_name = owner
        identity = self._identity(
            principal,
            "CreateApiKey",
            idempotency_key,
            application_id=application_id,
            operator_name=operator_name,
            key_sha256=key_sha256,
            scopes=sorted(scopes),
            expires_at="" if expires_at is None else expires_at.isoformat(),
        )
        if bool(application_id) == bool(operator_name):
            raise InvalidArgumentError.of_field(
                "application_id", "name either an application or an operator_name, not both"
            )
        if not scopes or not set(scopes) <= SCOPES:
            raise InvalidArgumentError.of_field("scopes", "name at least one known scope")
        key = NewApiKey(
            api_key_id=self._ids.new_id(),
            application_id=parse_id(application_id, "application_id") if application_id else None,
            operator_name=checked_name(operator_name, "operator_name") if operator_name else None,
            key_sha256=parse_token_hash(key_sha256, "key_sha256"),
            scopes=tuple(sorted(set(scopes))),
            expires_at=expires_at,
        )
        return await self._store.add_key(identity, key)

    async def revoke_key(self, principal: Principal, idempotency_key: str, api_key_id: str) -> bool:
        """End a key; returns whether this call did; ApiKeyNotFoundError."""
        identity = self._identity(principal, "RevokeApiKey", idempotency_key, api_key_id=api_key_id)
        _, created = await self._store.revoke_key(identity, parse_id(api_key_id, "api_key_id"))
        return created

    async def set_callback(
        self,
        principal: Principal,
        operation: str,
        idempotency_key: str,
        application_id: str,
        change: EndpointChange,
    ) -> tuple[Application, bool]:
        """Set the callback URL, the signing secret or both, and enable the endpoint."""
        identity = self._change_identity(
            principal, operation, idempotency_key, application_id, change
        )
        stored_id, created = await self._store.set_callback_endpoint(
            identity, *self._checked(_CALLBACK, application_id, change)
        )
        # Also for a replay: the first call may have died between the two.
        await self._held.release(stored_id)
        return await self._store.get(stored_id), created

    async def set_provider(
        self,
        principal: Principal,
        operation: str,
        idempotency_key: str,
        application_id: str,
        change: EndpointChange,
    ) -> tuple[Application, bool]:
        """Set the resource provider's URL, its secret or both."""
        identity = self._change_identity(
            principal, operation, idempotency_key, application_id, change
        )
        stored_id, created = await self._store.set_resource_provider(
            identity, *self._checked(_PROVIDER, application_id, change)
        )
        return await self._store.get(stored_id), created

    async def disable(
        self, principal: Principal, idempotency_key: str, application_id: str
    ) -> tuple[Application, bool]:
        """Refuse the application's new tasks; what runs goes on."""
        identity = self._identity(
            principal, "DisableApplication", idempotency_key, application_id=application_id
        )
        stored_id, created = await self._store.disable(
            identity, parse_id(application_id, "application_id")
        )
        return await self._store.get(stored_id), created

    def _identity(
        self, principal: Principal, operation: str, key: str, **fields: FieldValue
    ) -> RequestIdentity:
        principal.require_kind(PrincipalKind.OPERATOR)
        principal.require_scope(Scope.ADMIN)
        return request_identity(principal, operation, key, request_hash(operation, fields))

    def _change_identity(
        self,
        principal: Principal,
        operation: str,
        key: str,
        application_id: str,
        change: EndpointChange,
    ) -> RequestIdentity:
        return self._identity(
            principal,
            operation,
            key,
            application_id=application_id,
            url=change.url,
            secret=hash_token(change.secret.hex()),
        )

    def _checked(
        self, endpoint: _Endpoint, application_id: str, change: EndpointChange
    ) -> tuple[str, str | None, bytes | None]:
        """Return the id, the URL and the sealed secret to store, None where one is kept."""
        url = None if change.url is None else self._url(endpoint, change.url)
        secret = self._sealed(endpoint, application_id, change.secret, needed=change.url is None)
        return parse_id(application_id, "application_id"), url, secret

    def _url(self, endpoint: _Endpoint, url: str) -> str:
        return check_endpoint(url, endpoint.url_field, endpoint.schemes, self._policy)

    def _sealed(
        self, endpoint: _Endpoint, application_id: str, secret: bytes, *, needed: bool
    ) -> bytes | None:
        checked = checked_secret(secret, endpoint.secret_field, needed=needed)
        if checked is None:
            return None
        return self._keys.seal(checked, endpoint.secret_place(application_id))


def callback_secret_place(application_id: str) -> SecretPlace:
    """Return where an application's signing secret is sealed to."""
    return _CALLBACK.secret_place(application_id)


def provider_secret_place(application_id: str) -> SecretPlace:
    """Return where an application's provider secret is sealed to."""
    return _PROVIDER.secret_place(application_id)
