"""What makes an upload acceptable."""

import pytest

from business_gateway.core.assets.domain import (
    AssetTooLargeError,
    checked_asset_name,
    checked_declared_size,
    checked_sha256,
    hash_rejection,
    magic_rejection,
    size_rejection,
)
from foundation.errors import InvalidArgumentError


@pytest.mark.parametrize("first", [b"PK\x03\x04", b"PK\x05\x06rest"])
def test_zip_archives_begin_like_this(first: bytes) -> None:
    """A file header, or the end record of an archive without entries."""
    assert magic_rejection(first) is None


@pytest.mark.parametrize(
    "first", [b"", b"PK\x03", b"PK\x07\x08", b"Rar!", b"7z\xbc\xaf", b"<htm", b"\x00PK\x03\x04"]
)
def test_other_beginnings_are_rejected(first: bytes) -> None:
    """Whatever else it is, the reason says how it begins."""
    rejection = magic_rejection(first)
    assert rejection is not None
    assert rejection.reason == "ASSET_NOT_ZIP"
    assert (first[:4].hex() or "is empty") in rejection.message


def test_size_and_hash_must_be_as_declared() -> None:
    """Nothing declared fits everything; a limit holds in any case."""
    assert size_rejection(5, 5, 10) is None
    assert size_rejection(5, None, 10) is None
    for size, declared, reason in ((5, 6, "ASSET_SIZE_MISMATCH"), (11, 11, "ASSET_TOO_LARGE")):
        rejection = size_rejection(size, declared, 10)
        assert rejection is not None
        assert rejection.reason == reason
    assert hash_rejection(bytes(32), None) is None
    assert hash_rejection(bytes(32), bytes(32)) is None
    assert hash_rejection(bytes(32), b"\x01" * 32) is not None


def test_fields_are_checked() -> None:
    """Names are trimmed and counted in characters; sizes and hashes have their form."""
    assert checked_asset_name(" 照" + "片" * 199 + " ") == "照" + "片" * 199
    for name in ("", " ", "a" * 201, "a\x00"):
        with pytest.raises(InvalidArgumentError):
            checked_asset_name(name)
    assert checked_sha256("") is None
    assert checked_sha256("aB" * 32) == b"\xab" * 32
    with pytest.raises(InvalidArgumentError):
        checked_sha256("a" * 63)
    assert checked_declared_size(10, 10) == 10
    with pytest.raises(InvalidArgumentError):
        checked_declared_size(0, 10)
    with pytest.raises(AssetTooLargeError):
        checked_declared_size(11, 10)
