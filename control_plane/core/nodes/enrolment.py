"""Turns a join token into a node."""

from typing import Final

from control_plane.core.idempotency import KEY_CHARS_MAX
from control_plane.core.nodes.errors import JoinTokenInvalidError
from control_plane.core.nodes.ports import NodeStore
from foundation.canonical_json import FieldValue, request_hash
from foundation.errors import InvalidArgumentError
from foundation.secrets import TokenKind, hash_token, parse_token_hash, token_kind

NAME_CHARS_MAX: Final = 100


class Enrolment:
    """The use case of Enroll; its principal is the join token."""

    def __init__(self, nodes: NodeStore) -> None:
        self._nodes = nodes

    async def enrol(
        self, join_token: str, idempotency_key: str, node_name: str, credential_sha256: bytes
    ) -> str:
        """Return the node's id, the same for a repeated call.

        Raises InvalidArgumentError, JoinTokenInvalidError, JoinTokenSpentError,
        NodeExistsError, IdempotencyKeyReusedError.
        """
        if token_kind(join_token) is not TokenKind.JOIN:
            raise JoinTokenInvalidError(
                "the bearer token is no join token (tdp_join_…): create one with CreateJoinToken"
            )
        if not 1 <= len(idempotency_key) <= KEY_CHARS_MAX:
            raise InvalidArgumentError.of_field(
                "idempotency_key", f"has {len(idempotency_key)} characters: 1 to {KEY_CHARS_MAX}"
            )
        if not len(node_name.strip()) >= 1 or len(node_name) > NAME_CHARS_MAX:
            raise InvalidArgumentError.of_field(
                "node_name", f"has {len(node_name)} characters: 1 to {NAME_CHARS_MAX}"
            )
        credential = parse_token_hash(credential_sha256, "credential_sha256")
        fields: dict[str, FieldValue] = {
            "node_name": node_name,
            "credential_sha256": credential,
        }
        digest = request_hash("Enroll", fields)
        return await self._nodes.enrol(
            hash_token(join_token), idempotency_key, digest, node_name, credential
        )
