"""Secrets: sealed to their place, rotated, and tokens kept as hashes."""

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import InvalidArgumentError
from foundation.secrets import (
    KeyRing,
    SecretPlace,
    SecretUnreadableError,
    TokenKind,
    hash_token,
    new_token,
    parse_token_hash,
    token_kind,
    token_matches,
)

PLACE = SecretPlace("applications", "callback_secret", "app-1", "row-1")
RING = KeyRing({1: b"1" * 32, 2: b"2" * 32}, current=2)


@given(st.binary(max_size=500))
def test_sealed_opens_in_its_place(secret: bytes) -> None:
    """What was sealed opens again, and sealing twice gives different bytes."""
    sealed = RING.seal(secret, PLACE)
    assert RING.open(sealed, PLACE) == secret
    assert RING.seal(secret, PLACE) != sealed


@pytest.mark.parametrize("part", ["table", "column", "tenant", "row"])
def test_a_swapped_ciphertext_fails(part: str) -> None:
    """A ciphertext moved to another table, column, tenant or row does not open."""
    elsewhere = replace(PLACE, **{part: "other"})
    with pytest.raises(SecretUnreadableError, match="moved"):
        RING.open(RING.seal(b"s", PLACE), elsewhere)


def test_places_cannot_be_confused_by_joining_their_parts() -> None:
    """Shifting characters from one part of the place to the next is another place."""
    sealed = RING.seal(b"s", SecretPlace("ab", "c", "t", "r"))
    with pytest.raises(SecretUnreadableError):
        RING.open(sealed, SecretPlace("a", "bc", "t", "r"))


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_any_flipped_bit_is_noticed(position: int, bit: int) -> None:
    """Damage anywhere, header included, is refused."""
    sealed = bytearray(RING.seal(b"some secret", PLACE))
    sealed[position % len(sealed)] ^= 1 << bit
    with pytest.raises(SecretUnreadableError):
        RING.open(bytes(sealed), PLACE)


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x01" * 32, b"\x09" + b"\0" * 60])
def test_rubbish_is_refused(sealed: bytes) -> None:
    """Too short and foreign formats get the same kind of error."""
    with pytest.raises(SecretUnreadableError):
        RING.open(sealed, PLACE)


def test_rotation() -> None:
    """An old key still opens, what it sealed is outdated, and dropping it is noticed."""
    before = KeyRing({1: b"1" * 32}, current=1)
    sealed = before.seal(b"s", PLACE)
    assert RING.open(sealed, PLACE) == b"s"
    assert RING.is_outdated(sealed)
    assert not RING.is_outdated(RING.seal(b"s", PLACE))
    with pytest.raises(SecretUnreadableError, match="key version 1"):
        KeyRing({2: b"2" * 32}, current=2).open(sealed, PLACE)


def test_the_ring_reads_from_text_and_hides_keys() -> None:
    """The highest version is current; no key shows in repr."""
    encoded = [base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2)]
    ring = KeyRing.parse(f"1:{encoded[0]}, 2:{encoded[1]}")
    assert (ring.current, sorted(ring.keys)) == (2, [1, 2])
    assert "\\x01" not in repr(ring)


@pytest.mark.parametrize("text", ["", "1", "0:AAAA", "1:AAAA", "x:AAAA", "1:!!!", "1:A,1:A"])
def test_bad_rings_are_refused_unquoted(text: str) -> None:
    """A malformed ring is refused, naming the part but not the key."""
    with pytest.raises(ValueError, match=r"key (ring|version)") as caught:
        KeyRing.parse(text)
    assert "AAAA" not in str(caught.value)


@pytest.mark.parametrize("kind", list(TokenKind))
def test_tokens_tell_their_kind(kind: TokenKind) -> None:
    """A token shows what it is for, differs each time, and is matched by its hash."""
    token = new_token(kind)
    assert token_kind(token) is kind
    assert token != new_token(kind)
    assert token_matches(token, hash_token(token))
    assert not token_matches(token + "x", hash_token(token))


@pytest.mark.parametrize("text", ["", "tdp_key_", "tdp_key_short", "other_" + "a" * 43])
def test_foreign_tokens_have_no_kind(text: str) -> None:
    """What is not shaped like our token has no kind."""
    assert token_kind(text) is None


def test_a_sent_hash_must_be_sha256() -> None:
    """A hash of another length is refused with its field."""
    assert parse_token_hash(hash_token("x"), "key_hash") == hash_token("x")
    with pytest.raises(InvalidArgumentError, match="key_hash"):
        parse_token_hash(b"short", "key_hash")
