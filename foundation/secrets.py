"""Secrets at rest: AEAD bound to their row, with key rotation; tokens kept as hashes only."""

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from foundation.errors import InternalError, InvalidArgumentError

KEY_BYTES: Final = 32
TOKEN_HASH_BYTES: Final = 32
_NONCE_BYTES = 12
# Format number and key version, before the nonce and the ciphertext with its tag.
_HEADER = struct.Struct(">BI")
_FORMAT = 1
_TAG_BYTES = 16
_KEY_VERSION_MAX = 2**32 - 1


class SecretUnreadableError(InternalError):
    """A stored secret cannot be opened: wrong row, damaged, or its key is not in the ring."""

    reason = "SECRET_UNREADABLE"


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """Where a sealed secret lives; one moved to another place does not open there."""

    table: str
    column: str
    tenant: str
    row: str


@dataclass(frozen=True, slots=True)
class KeyRing:
    """AES-256-GCM keys by version; `current` seals, every one of them opens.

    To rotate: add a key under a higher version, make it current everywhere, seal again
    what `is_outdated`, then drop the old key. A random 96-bit nonce allows 2**32 seals
    per key.
    """

    keys: Mapping[int, bytes] = field(repr=False)
    current: int

    def __post_init__(self) -> None:
        """Refuse keys of a wrong length, versions out of range, and an absent current one."""
        for version, key in self.keys.items():
            if len(key) != KEY_BYTES or not 1 <= version <= _KEY_VERSION_MAX:
                raise ValueError(f"key version {version} has {len(key)} bytes: use {KEY_BYTES}")
        if self.current not in self.keys:
            raise ValueError(f"the current key version {self.current} is not in the key ring")

    @classmethod
    def parse(cls, text: str) -> "KeyRing":
        """Read `VERSION:BASE64[,VERSION:BASE64…]`; the highest version is the current one.

        ValueError says which part is wrong, without quoting a key.
        """
        keys: dict[int, bytes] = {}
        for position, part in enumerate(text.split(","), start=1):
            version, key = _parse_key(part.strip(), position)
            if version in keys:
                raise ValueError(f"key version {version} occurs twice in the key ring")
            keys[version] = key
        return cls(keys, max(keys))

    def seal(self, secret: bytes, place: SecretPlace) -> bytes:
        """Encrypt a secret for its place with the current key."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        cipher = AESGCM(self.keys[self.current])
        sealed = cipher.encrypt(nonce, secret, _associated_data(place, self.current))
        return _HEADER.pack(_FORMAT, self.current) + nonce + sealed

    def open(self, sealed: bytes, place: SecretPlace) -> bytes:
        """Decrypt what `seal` made for this place; SecretUnreadableError otherwise."""
        version = _key_version(sealed, place)
        key = self.keys.get(version)
        if key is None:
            raise _unreadable(place, f"key version {version} is not in the key ring: add it back")
        body = sealed[_HEADER.size :]
        try:
            return AESGCM(key).decrypt(
                body[:_NONCE_BYTES], body[_NONCE_BYTES:], _associated_data(place, version)
            )
        except InvalidTag:
            raise _unreadable(
                place, "it is damaged, was moved from another row, or its key was replaced"
            ) from None

    def is_outdated(self, sealed: bytes) -> bool:
        """Whether a sealed secret was not made with the current key."""
        return not sealed.startswith(self.current_mark)

    @property
    def current_mark(self) -> bytes:
        """What everything begins with that the current key sealed."""
        return _HEADER.pack(_FORMAT, self.current)


def _parse_key(part: str, position: int) -> tuple[int, bytes]:
    version, colon, encoded = part.partition(":")
    if not colon or not re.fullmatch(r"[1-9][0-9]{0,9}", version):
        raise ValueError(f"part {position} of the key ring is not VERSION:BASE64")
    try:
        return int(version), base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError(f"part {position} of the key ring is not base64 after its colon") from None


def _associated_data(place: SecretPlace, key_version: int) -> bytes:
    facts = [place.table, place.column, place.tenant, place.row, key_version]
    return json.dumps(facts, separators=(",", ":")).encode("ascii")


def _key_version(sealed: bytes, place: SecretPlace) -> int:
    if len(sealed) < _HEADER.size + _NONCE_BYTES + _TAG_BYTES:
        raise _unreadable(place, f"it has only {len(sealed)} bytes")
    form, version = _HEADER.unpack_from(sealed)
    if form != _FORMAT:
        raise _unreadable(place, f"its format {form} is not known to this version")
    return int(version)


def _unreadable(place: SecretPlace, why: str) -> SecretUnreadableError:
    return SecretUnreadableError(
        f"the secret in {place.table}.{place.column} of row {place.row} cannot be opened: {why}"
    )


class TokenKind(StrEnum):
    """What a bearer token is for; its value is the token's readable prefix."""

    API_KEY = "tdp_key_"
    JOIN = "tdp_join_"
    NODE = "tdp_node_"


_TOKEN_BODY = re.compile(r"[A-Za-z0-9_-]{43}")


def new_token(kind: TokenKind, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Make a token: the readable prefix and 32 random bytes in URL-safe base64."""
    body = base64.urlsafe_b64encode(random_bytes(32)).rstrip(b"=").decode("ascii")
    return kind.value + body


def token_kind(token: str) -> TokenKind | None:
    """Tell what a token is for by its shape, or None if it is none of ours."""
    for kind in TokenKind:
        if token.startswith(kind) and _TOKEN_BODY.fullmatch(token.removeprefix(kind)):
            return kind
    return None


def hash_token(token: str) -> bytes:
    """SHA-256 of a token: enough, since it holds 256 random bits and is never chosen by people."""
    return hashlib.sha256(token.encode("utf-8")).digest()


def token_matches(token: str, token_hash: bytes) -> bool:
    """Whether a token has this hash, compared in constant time."""
    return hmac.compare_digest(hash_token(token), token_hash)


def parse_token_hash(token_hash: bytes, field: str) -> bytes:
    """Return a hash sent by the caller who made the token; InvalidArgumentError if not 32 bytes."""
    if len(token_hash) != TOKEN_HASH_BYTES:
        raise InvalidArgumentError.of_field(
            field,
            f"has {len(token_hash)} bytes: send the SHA-256 of the token, {TOKEN_HASH_BYTES} bytes",
            reason="TOKEN_HASH_LENGTH",
        )
    return token_hash
