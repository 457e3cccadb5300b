"""What operators do with nodes and join tokens."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from control_plane.core.idempotency import RequestIdentity, request_identity
from control_plane.core.nodes.domain import (
    JoinToken,
    ManagementChange,
    NodePlacement,
    NodeView,
)
from control_plane.core.nodes.errors import NodeUnknownError
from control_plane.core.nodes.ports import NodeDirectory, NodeManagementStore
from control_plane.core.scheduling.domain import Management
from control_plane.core.wakeups import LocalHints
from control_plane.limits import LABEL_CHARS_MAX
from foundation.canonical_json import FieldValue, request_hash
from foundation.errors import InvalidArgumentError
from foundation.ids import parse_id
from foundation.principals import Principal, PrincipalKind, Scope
from foundation.secrets import parse_token_hash

TOKEN_TTL_DEFAULT: Final = timedelta(hours=24)
TOKEN_TTL_MAX: Final = timedelta(days=365)
REASON_CHARS_MAX: Final = 500
GROUP_CHARS_MAX: Final = 100
DRAIN_GRACE_MAX: Final = timedelta(days=7)
NODE_LABELS_MAX: Final = 64
_WEIGHT_MAX: Final = 1_000_000


class NodeAdministration:
    """The use cases of NodeAdminService; reading needs scope read, all else scope admin."""

    def __init__(
        self, directory: NodeDirectory, management: NodeManagementStore, hints: LocalHints
    ) -> None:
        self._directory = directory
        self._management = management
        self._hints = hints

    async def list(
        self, principal: Principal, after_name: str, count_max: int
    ) -> Sequence[NodeView]:
        """Return nodes by name, those after `after_name`."""
        _require(principal, Scope.READ)
        return await self._directory.list_nodes(after_name, count_max)

    async def get(self, principal: Principal, node_id: str) -> NodeView:
        """Return one node; NodeUnknownError."""
        _require(principal, Scope.READ)
        return await self._read(parse_id(node_id, "node_id"))

    async def set_management(
        self, principal: Principal, key: str, node_id: str, reason: str, management: Management
    ) -> tuple[NodeView, bool]:
        """Cordon or uncordon a node; return it, and False for a replay. NodeUnknownError."""
        operation = "UncordonNode" if management is Management.ACTIVE else "CordonNode"
        identity = _identity(principal, operation, key, node_id=node_id, reason=reason)
        change = ManagementChange(management, identity.principal, reason)
        return await self._manage(principal, identity, node_id, change)

    async def drain(
        self, principal: Principal, key: str, node_id: str, reason: str, grace: timedelta
    ) -> tuple[NodeView, bool]:
        """Let a node end what it has; return it, and False for a replay. NodeUnknownError."""
        if not timedelta(0) <= grace <= DRAIN_GRACE_MAX:
            raise InvalidArgumentError.of_field(
                "grace_period", f"is {grace}: 0 (until all has ended) to 7 days"
            )
        grace_us = grace // timedelta(microseconds=1)
        identity = _identity(
            principal, "DrainNode", key, node_id=node_id, reason=reason, grace_us=grace_us
        )
        change = ManagementChange(
            Management.DRAINING, identity.principal, reason, grace.total_seconds()
        )
        return await self._manage(principal, identity, node_id, change)

    async def _manage(
        self,
        principal: Principal,
        identity: RequestIdentity,
        node_id: str,
        change: ManagementChange,
    ) -> tuple[NodeView, bool]:
        _require(principal, Scope.ADMIN)
        wanted = parse_id(node_id, "node_id")
        if len(change.reason) > REASON_CHARS_MAX:
            raise InvalidArgumentError.of_field(
                "reason", f"has {len(change.reason)} characters: at most {REASON_CHARS_MAX}"
            )
        created = await self._management.set_management(identity, wanted, change)
        if created:
            self._hints.nodes.add([wanted])
            self._hints.capacity_freed()
        return await self._read(wanted), created

    async def place(
        self, principal: Principal, key: str, node_id: str, placement: NodePlacement
    ) -> tuple[NodeView, bool]:
        """Set labels, weight and group; return the node, False for a replay. NodeUnknownError."""
        _require(principal, Scope.ADMIN)
        wanted = parse_id(node_id, "node_id")
        _check_placement(placement)
        identity = _identity(
            principal,
            "SetNodePlacement",
            key,
            node_id=node_id,
            labels=placement.labels,
            weight=placement.weight,
            group=placement.group,
        )
        created = await self._management.set_placement(identity, wanted, placement)
        if created:
            self._hints.capacity_freed()
        return await self._read(wanted), created

    async def remove(
        self, principal: Principal, key: str, node_id: str, *, loses_attempts: bool
    ) -> bool:
        """Forget a node; False for a replay. NodeUnknownError, NodeBusyError."""
        _require(principal, Scope.ADMIN)
        wanted = parse_id(node_id, "node_id")
        identity = _identity(
            principal, "RemoveNode", key, node_id=node_id, loses_attempts=loses_attempts
        )
        created, aftermath = await self._management.remove(
            identity, wanted, loses_attempts=loses_attempts
        )
        aftermath.give(self._hints)
        if created:
            # What waits may have to say now that no known node could ever take it.
            self._hints.capacity_freed()
        return created

    async def create_join_token(
        self,
        principal: Principal,
        key: str,
        token_sha256: bytes,
        ttl: timedelta,
        use_count_max: int,
        node_group: str,
    ) -> tuple[JoinToken, bool]:
        """Register a join token by its hash; JoinTokenExistsError."""
        _require(principal, Scope.ADMIN)
        digest = parse_token_hash(token_sha256, "token_sha256")
        if not timedelta(0) <= ttl <= TOKEN_TTL_MAX:
            raise InvalidArgumentError.of_field("ttl", f"is {ttl}: 0 (24 hours) to 365 days")
        if use_count_max < 0:
            raise InvalidArgumentError.of_field("use_count_max", f"is {use_count_max}: 0 or more")
        _check_group(node_group)
        identity = _identity(
            principal,
            "CreateJoinToken",
            key,
            token_sha256=digest,
            ttl_us=ttl // timedelta(microseconds=1),
            use_count_max=use_count_max,
            group=node_group,
        )
        return await self._directory.create_join_token(
            identity, digest, ttl or TOKEN_TTL_DEFAULT, use_count_max, node_group
        )

    async def revoke_join_token(self, principal: Principal, key: str, join_token_id: str) -> bool:
        """End a join token; False for a replay. JoinTokenUnknownError."""
        _require(principal, Scope.ADMIN)
        wanted = parse_id(join_token_id, "join_token_id")
        identity = _identity(principal, "RevokeJoinToken", key, join_token_id=join_token_id)
        return await self._directory.revoke_join_token(identity, wanted)

    async def _read(self, node_id: str) -> NodeView:
        found = await self._directory.get_node(node_id)
        if found is None:
            raise NodeUnknownError(f"no node {node_id}: list the nodes for their ids")
        return found


def _check_group(node_group: str) -> None:
    if len(node_group) > GROUP_CHARS_MAX:
        raise InvalidArgumentError.of_field(
            "group", f"has {len(node_group)} characters: at most {GROUP_CHARS_MAX}"
        )


def _check_placement(placement: NodePlacement) -> None:
    _check_group(placement.group)
    if placement.weight > _WEIGHT_MAX:
        raise InvalidArgumentError.of_field(
            "weight", f"is {placement.weight}: at most {_WEIGHT_MAX}, and 0 and less mean 100"
        )
    if len(placement.labels) > NODE_LABELS_MAX:
        raise InvalidArgumentError.of_field(
            "labels", f"are {len(placement.labels)}: at most {NODE_LABELS_MAX}"
        )
    for name, value in placement.labels.items():
        if not name or max(len(name), len(value)) > LABEL_CHARS_MAX:
            raise InvalidArgumentError.of_field(
                "labels",
                f"{name[:80]!r}={value[:80]!r}: a name of 1 to {LABEL_CHARS_MAX} characters and "
                "a value of at most as many",
            )


def _require(principal: Principal, scope: Scope) -> None:
    principal.require_kind(PrincipalKind.OPERATOR)
    principal.require_scope(scope)


def _identity(
    principal: Principal, operation: str, key: str, **fields: FieldValue
) -> RequestIdentity:
    return request_identity(principal, operation, key, request_hash(operation, fields))
