"""What operators do with nodes and join tokens."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from control_plane.core.idempotency import RequestIdentity, request_identity
from control_plane.core.nodes.domain import JoinToken, NodeView
from control_plane.core.nodes.errors import NodeUnknownError
from control_plane.core.nodes.ports import NodeDirectory
from control_plane.core.scheduling.domain import Management
from control_plane.core.wakeups import LocalHints
from foundation.canonical_json import FieldValue, request_hash
from foundation.errors import InvalidArgumentError
from foundation.ids import parse_id
from foundation.principals import Principal, PrincipalKind, Scope
from foundation.secrets import parse_token_hash

TOKEN_TTL_DEFAULT: Final = timedelta(hours=24)
TOKEN_TTL_MAX: Final = timedelta(days=365)
REASON_CHARS_MAX: Final = 500
GROUP_CHARS_MAX: Final = 100


class NodeAdministration:
    """The use cases of NodeAdminService; reading needs scope read, all else scope admin."""

    def __init__(self, directory: NodeDirectory, hints: LocalHints) -> None:
        self._directory = directory
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
        _require(principal, Scope.ADMIN)
        wanted = parse_id(node_id, "node_id")
        if len(reason) > REASON_CHARS_MAX:
            raise InvalidArgumentError.of_field(
                "reason", f"has {len(reason)} characters: at most {REASON_CHARS_MAX}"
            )
        operation = "UncordonNode" if management is Management.ACTIVE else "CordonNode"
        identity = _identity(principal, operation, key, node_id=node_id, reason=reason)
        created = await self._directory.set_management(identity, wanted, management)
        if created and management is Management.ACTIVE:
            self._hints.capacity_freed()
        return await self._read(wanted), created

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
        if len(node_group) > GROUP_CHARS_MAX:
            raise InvalidArgumentError.of_field(
                "group", f"has {len(node_group)} characters: at most {GROUP_CHARS_MAX}"
            )
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


def _require(principal: Principal, scope: Scope) -> None:
    principal.require_kind(PrincipalKind.OPERATOR)
    principal.require_scope(scope)


def _identity(
    principal: Principal, operation: str, key: str, **fields: FieldValue
) -> RequestIdentity:
    return request_identity(principal, operation, key, request_hash(operation, fields))
