"""The grants of one attempt: asked for with keys, kept while fresh, renewed before they end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final, Protocol, TypeVar

from foundation.backoff import BackoffPolicy
from foundation.clock import Clock
from foundation.errors import NotFoundError, TdpError
from node_agent.core.execution.ports import AllocatedArtifact, ArtifactRequest, Grant
from node_agent.core.session.lease_clock import HeldLease
from node_agent.limits import (
    ALLOCATIONS_PER_CALL_MAX,
    GRANT_MARGIN_S,
    GRANT_RETRY_FOR_S,
    GRANT_REUSE_S_MAX,
)

AnswerT = TypeVar("AnswerT")
_BACKOFF: Final = BackoffPolicy(base_s=0.2, cap_s=5.0)


class GrantService(Protocol):
    """The control plane's grant calls; a repeated key gives the answer of the first call.

    All raise TdpErrors: LEASE_LOST for an attempt that is no longer ours; retryable ones where
    the control plane or the provider is away.
    """

    async def authorize(self, lease: HeldLease, resource_ref: str, key: str) -> Grant:
        """Return a grant to read a resource."""
        ...

    async def renew(self, lease: HeldLease, grant_id: str, key: str) -> Grant:
        """Return a grant in place of one that is about to end; NotFoundError if it is unknown."""
        ...

    async def allocate(
        self, lease: HeldLease, collection_ref: str, requests: Sequence[ArtifactRequest], key: str
    ) -> Sequence[AllocatedArtifact]:
        """Return places for at most 200 files, in the order of the requests."""
        ...


@dataclass(frozen=True, slots=True)
class GrantTools:
    """What every attempt's grants are asked with."""

    service: GrantService
    clock: Clock
    random: Random
    new_id: Callable[[], str]
    retry_for_s: float = GRANT_RETRY_FOR_S


@dataclass(frozen=True, slots=True)
class _Kept:
    """A grant in hand, good for use until `usable_until_s` of the monotonic clock."""

    grant: Grant
    usable_until_s: float


class AttemptGrants:
    """The grants of one attempt under its lease."""

    def __init__(self, lease: HeldLease, tools: GrantTools) -> None:
        """Start with none."""
        self._lease = lease
        self._tools = tools
        self._kept: dict[str, _Kept] = {}

    async def authorize(self, resource_ref: str) -> Grant:
        """Return a grant to read, the last one while it is fresh. Raises TdpErrors."""
        kept = self._kept.get(resource_ref)
        if kept is not None and self._tools.clock.monotonic() < kept.usable_until_s:
            return kept.grant
        if kept is None:
            grant = await self._authorize(resource_ref)
        else:
            grant = await self._renew(kept.grant)
        self._kept[resource_ref] = self._keep(grant)
        return grant

    async def allocate(
        self, collection_ref: str, requests: Sequence[ArtifactRequest]
    ) -> Sequence[AllocatedArtifact]:
        """Return places in the order of the requests, as many calls as that takes."""
        places: list[AllocatedArtifact] = []
        for start in range(0, len(requests), ALLOCATIONS_PER_CALL_MAX):
            part = requests[start : start + ALLOCATIONS_PER_CALL_MAX]
            places += await self._allocate(collection_ref, part)
        return places

    async def _allocate(
        self, collection_ref: str, requests: Sequence[ArtifactRequest]
    ) -> Sequence[AllocatedArtifact]:
        key = self._tools.new_id()
        return await self._patiently(
            lambda: self._tools.service.allocate(self._lease, collection_ref, requests, key)
        )

    async def _authorize(self, resource_ref: str) -> Grant:
        key = self._tools.new_id()
        return await self._patiently(
            lambda: self._tools.service.authorize(self._lease, resource_ref, key)
        )

    async def _renew(self, grant: Grant) -> Grant:
        key = self._tools.new_id()
        try:
            return await self._patiently(
                lambda: self._tools.service.renew(self._lease, grant.grant_id, key)
            )
        except NotFoundError:
            return await self._authorize(grant.resource_ref)

    async def _patiently(self, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Repeat a call under its key while the other side is away, for a bounded time."""
        give_up_at_s = self._tools.clock.monotonic() + self._tools.retry_for_s
        failures = 0
        while True:
            try:
                return await call()
            except TdpError as error:
                failures += 1
                delay_s = _BACKOFF.delay_s(failures, self._tools.random)
                delay_s = max(delay_s, error.retry_delay_s or 0.0)
                if not error.retryable or self._tools.clock.monotonic() + delay_s > give_up_at_s:
                    raise
            await asyncio.sleep(delay_s)

    def _keep(self, grant: Grant) -> _Kept:
        """Judge how long a grant is handed out again: never near its end, and never for long."""
        left_s = (grant.expires_at - self._tools.clock.now()) / timedelta(seconds=1)
        usable_s = min(left_s - min(GRANT_MARGIN_S, left_s / 3), GRANT_REUSE_S_MAX)
        return _Kept(grant, self._tools.clock.monotonic() + usable_s)
