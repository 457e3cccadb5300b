"""Access for running attempts: authorise, renew, allocate."""

from control_plane.core.grants.domain import (
    Allocation,
    ArtifactPlace,
    Grant,
    GrantHolder,
    GrantMethod,
    GrantRequest,
    LiveAttempt,
    NotReferencedError,
    ancestors,
    check_access,
    check_places,
    check_request,
    references,
)
from control_plane.core.grants.ports import GrantStore, ResourceProvider
from control_plane.core.idempotency import IdempotencyKeyReusedError
from foundation.errors import InvalidArgumentError
from foundation.ids import IdSource, parse_id
from foundation.principals import Principal, PrincipalKind


class Grants:
    """The grant calls of NodeService."""

    def __init__(
        self,
        store: GrantStore,
        provider: ResourceProvider,
        ids: IdSource,
        *,
        insecure_allowed: bool,
    ) -> None:
        self._store = store
        self._provider = provider
        self._ids = ids
        self._insecure_allowed = insecure_allowed

    async def authorize(
        self, principal: Principal, attempt_id: str, lease_version: int, request: GrantRequest
    ) -> Grant:
        """Give access to one resource that the attempt's work names.

        Raises LeaseLostError, NotReferencedError, and what the provider raises.
        """
        check_request(request)
        _check_key(request.key)
        attempt = await self._store.live_attempt(_holder(principal, attempt_id, lease_version))
        known = await self._store.grant_of_key(attempt, request.key)
        if known is not None:
            return _same(known, request)
        await self._check_reference(attempt, request)
        return await self._issue(attempt, request)

    async def renew(
        self, principal: Principal, attempt_id: str, lease_version: int, key: str, grant_id: str
    ) -> Grant:
        """Replace a grant by a fresh one for the same resource; GrantNotFoundError."""
        _check_key(key)
        attempt = await self._store.live_attempt(_holder(principal, attempt_id, lease_version))
        known = await self._store.grant_of_key(attempt, key)
        if known is not None:
            return known
        old = await self._store.grant(attempt, parse_id(grant_id, "grant_id"))
        request = GrantRequest(
            key,
            old.request.resource_ref,
            old.request.method,
            old.request.scope_type,
            old.request.scope_ref,
        )
        return await self._issue(attempt, request)

    async def allocate(
        self,
        principal: Principal,
        attempt_id: str,
        lease_version: int,
        key: str,
        boot_id: str,
        collection_ref: str,
        places: tuple[ArtifactPlace, ...],
    ) -> list[Allocation]:
        """Reserve places for results and give access to write them.

        The same (attempt, boot, path) has one reference, so a repeated call is answered with
        the same references and fresh grants.
        """
        check_places(places)
        _check_key(key)
        boot = parse_id(boot_id, "boot_id")
        attempt = await self._store.live_attempt(_holder(principal, attempt_id, lease_version))
        if collection_ref not in references(attempt.input_json):
            raise _not_referenced(attempt, collection_ref)
        answered = await self._provider.allocate(attempt, boot, collection_ref, places)
        made = [
            Allocation(
                place,
                resource_ref,
                Grant(
                    self._ids.new_id(),
                    GrantRequest(key, resource_ref, GrantMethod.PUT),
                    check_access(
                        access,
                        GrantMethod.PUT,
                        attempt.now,
                        insecure_allowed=self._insecure_allowed,
                    ),
                ),
            )
            for place, (resource_ref, access) in zip(places, answered, strict=True)
        ]
        await self._store.save_allocations(attempt, boot, collection_ref, made)
        return made

    async def _issue(self, attempt: LiveAttempt, request: GrantRequest) -> Grant:
        access = check_access(
            await self._provider.issue(attempt, request),
            request.method,
            attempt.now,
            insecure_allowed=self._insecure_allowed,
        )
        grant = Grant(self._ids.new_id(), request, access)
        await self._store.save(attempt, [grant])
        return grant

    async def _check_reference(self, attempt: LiveAttempt, request: GrantRequest) -> None:
        wanted = request.resource_ref
        if request.method is GrantMethod.PUT:
            if not await self._store.allocated_to(attempt.holder.attempt_id, wanted):
                raise _not_referenced(attempt, wanted)
            return
        if wanted in references(attempt.input_json):
            return
        owner = await self._store.committed_by(attempt.execution_id, wanted)
        definition = await self._store.definition(attempt.snapshot_digest)
        if owner is None or owner not in ancestors(definition, attempt.step_key):
            raise _not_referenced(attempt, wanted)


def _holder(principal: Principal, attempt_id: str, lease_version: int) -> GrantHolder:
    principal.require_kind(PrincipalKind.NODE)
    if lease_version < 1:
        raise InvalidArgumentError.of_field(
            "lease_version", f"is {lease_version}: send the attempt's own, at least 1"
        )
    return GrantHolder(principal.id, parse_id(attempt_id, "attempt_id"), lease_version)


def _check_key(key: str) -> None:
    if not 1 <= len(key) <= 200:  # noqa: PLR2004 - the bound of every idempotency key
        raise InvalidArgumentError.of_field("idempotency_key", "send 1 to 200 characters")


def _same(known: Grant, request: GrantRequest) -> Grant:
    if known.request != request:
        raise IdempotencyKeyReusedError(
            f"idempotency key {request.key!r} was used for {known.request.resource_ref}: "
            "use a new key for another resource",
            existing_id=known.grant_id,
        )
    return known


def _not_referenced(attempt: LiveAttempt, wanted: str) -> NotReferencedError:
    return NotReferencedError(
        f"attempt {attempt.holder.attempt_id} of step {attempt.step_key} may not use {wanted!r}: "
        "its input does not name it, and no step before it committed it"
    )
