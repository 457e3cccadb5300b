"""Assets: their states, what makes an upload acceptable, and where its bytes lie.

UPLOADING --> READY
    |
    +-------> REJECTED        (both final)
"""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType

from business_gateway.core.errors import GatewayError
from business_gateway.core.objects import ZIP_MEDIA_TYPE
from foundation.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    MessageTooLargeError,
    NotFoundError,
)

AssetId = NewType("AssetId", str)

NAME_CHARS_MAX: Final = 200
SHA256_BYTES: Final = 32
ZIP_MAGIC_BYTES: Final = 4
# A local file header, or the end record of an archive without entries.
_ZIP_MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_SHA256_HEX = re.compile(r"[0-9a-fA-F]{64}")


class AssetNotFoundError(GatewayError, NotFoundError):
    """There is no asset with this id; check it."""

    reason = "ASSET_NOT_FOUND"


class AssetNotUploadedError(GatewayError, FailedPreconditionError):
    """The asset's bytes are not in the store; upload them with the presigned URL first."""

    reason = "ASSET_NOT_UPLOADED"


class AssetBeingVerifiedError(GatewayError, AbortedError):
    """Another request is verifying this asset; ask again in a moment."""

    reason = "ASSET_BEING_VERIFIED"


class AssetRejectedError(GatewayError, InvalidArgumentError):
    """The uploaded bytes are not acceptable as an asset; nothing of them was kept."""

    reason = "ASSET_REJECTED"


class AssetTooLargeError(GatewayError, MessageTooLargeError):
    """The upload has more bytes than an asset may have; nothing of it was kept."""

    reason = "ASSET_TOO_LARGE"


class AssetState(StrEnum):
    """Whether the bytes are there and acceptable."""

    UPLOADING = "UPLOADING"
    READY = "READY"
    REJECTED = "REJECTED"


class RejectionReason(StrEnum):
    """Why an upload was rejected."""

    SIZE_MISMATCH = "ASSET_SIZE_MISMATCH"
    TOO_LARGE = "ASSET_TOO_LARGE"
    NOT_ZIP = "ASSET_NOT_ZIP"
    HASH_MISMATCH = "ASSET_HASH_MISMATCH"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why, for programs and in a sentence."""

    reason: RejectionReason
    message: str


@dataclass(frozen=True, slots=True)
class NewAsset:
    """What is stored when an upload begins."""

    asset_id: AssetId
    name: str
    declared_size_bytes: int | None = None
    declared_sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class Asset:
    """An asset as stored."""

    asset_id: AssetId
    name: str
    state: AssetState
    declared_size_bytes: int | None
    declared_sha256: bytes | None
    size_bytes: int | None
    sha256: bytes | None
    rejection_reason: str | None
    rejection_message: str | None
    created_at: datetime
    decided_at: datetime | None
    media_type: str = ZIP_MEDIA_TYPE


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an upload came to: READY with these facts, or REJECTED for this reason."""

    size_bytes: int
    sha256: bytes | None
    rejection: Rejection | None = None

    @property
    def state(self) -> AssetState:
        """The state that the verdict leads to."""
        return AssetState.READY if self.rejection is None else AssetState.REJECTED


def object_key(asset_id: AssetId) -> str:
    """Where the verified bytes lie; no client can write there."""
    return f"assets/{asset_id}/source.zip"


def upload_key(asset_id: AssetId) -> str:
    """Where a client's presigned upload lies until it is verified."""
    return f"uploads/{asset_id}/source.zip"


def checked_asset_name(name: str) -> str:
    """Return the trimmed name; InvalidArgumentError unless it has 1 to 200 characters."""
    trimmed = name.strip()
    if not 1 <= len(trimmed) <= NAME_CHARS_MAX or not is_storable(trimmed):
        raise InvalidArgumentError.of_field(
            "name",
            f"has {len(trimmed)} characters after trimming: send 1 to {NAME_CHARS_MAX}, "
            "without NUL",
        )
    return trimmed


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can keep the text: no NUL and no half of a surrogate pair."""
    return "\x00" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def checked_sha256(text: str) -> bytes | None:
    """Return the hash, None for an empty text; InvalidArgumentError unless 64 hex digits."""
    if not text:
        return None
    if not _SHA256_HEX.fullmatch(text):
        raise InvalidArgumentError.of_field("sha256", "is not 64 hexadecimal digits")
    return bytes.fromhex(text)


def checked_declared_size(size_bytes: int, size_bytes_max: int) -> int:
    """Return the size; InvalidArgumentError below 1, AssetTooLargeError over the limit."""
    if size_bytes < 1:
        raise InvalidArgumentError.of_field("size_bytes", f"is {size_bytes}: send at least 1")
    if size_bytes > size_bytes_max:
        raise too_large(size_bytes_max)
    return size_bytes


def too_large(size_bytes_max: int) -> AssetTooLargeError:
    """Make the error of an upload that has more bytes than allowed."""
    return AssetTooLargeError(
        f"the upload has more than {size_bytes_max} bytes: send a smaller archive",
        metadata={"size_bytes_max": str(size_bytes_max)},
    )


def size_rejection(
    size_bytes: int, declared_size_bytes: int | None, size_bytes_max: int
) -> Rejection | None:
    """Compare the size with what was declared and with the limit."""
    if size_bytes > size_bytes_max:
        return Rejection(
            RejectionReason.TOO_LARGE,
            f"the file has {size_bytes} bytes, at most {size_bytes_max} are accepted",
        )
    if declared_size_bytes is not None and size_bytes != declared_size_bytes:
        return Rejection(
            RejectionReason.SIZE_MISMATCH,
            f"the file has {size_bytes} bytes, {declared_size_bytes} were declared",
        )
    return None


def magic_rejection(first_bytes: bytes) -> Rejection | None:
    """Look at the first four bytes; whether the archive is sound shows when it is cleaned."""
    if first_bytes[:ZIP_MAGIC_BYTES] in _ZIP_MAGICS:
        return None
    shown = first_bytes[:ZIP_MAGIC_BYTES].hex()
    found = f"begins with {shown}, which no ZIP archive does" if shown else "is empty"
    return Rejection(RejectionReason.NOT_ZIP, f"the file {found}: upload a ZIP archive")


def hash_rejection(sha256: bytes, declared_sha256: bytes | None) -> Rejection | None:
    """Compare the hash with the declared one, where one was."""
    if declared_sha256 is None or sha256 == declared_sha256:
        return None
    return Rejection(
        RejectionReason.HASH_MISMATCH,
        f"the file's SHA-256 is {sha256.hex()}, {declared_sha256.hex()} was declared",
    )
