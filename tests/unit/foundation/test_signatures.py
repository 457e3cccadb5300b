"""Signatures: what was signed verifies, anything else is refused with its reason."""

import hashlib
import hmac
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import InvalidArgumentError
from foundation.signatures import (
    SIGNATURE_HEADER,
    SignatureError,
    SigningSecret,
    delivery_headers,
    sign,
    verify,
)

OLD = SigningSecret(b"o" * 32)
NEW = SigningSecret(b"n" * 32)
BODY = b'{"id":"1"}'
NOW = 1_780_000_000
secrets = st.binary(min_size=24, max_size=64).map(SigningSecret)


def test_the_header_is_the_published_formula() -> None:
    """The value can be recomputed from the formula in the contract alone."""
    mac = hmac.new(NEW.raw, b"1780000000." + BODY, hashlib.sha256).hexdigest()
    assert sign(BODY, NEW, NOW) == f"t=1780000000,v1={mac}"


@given(st.binary(max_size=2_000), secrets, st.integers(0, 10**11), st.integers(-300, 300))
def test_signed_verifies(body: bytes, secret: SigningSecret, at_s: int, skew_s: int) -> None:
    """Any body signed by an accepted secret verifies within 300 s either way."""
    assert verify(sign(body, secret, at_s), body, [OLD, secret], at_s + skew_s) == at_s


@given(st.binary(min_size=1, max_size=200), st.integers(0, 10**6), st.integers(0, 7))
def test_one_flipped_bit_is_refused(body: bytes, position: int, bit: int) -> None:
    """Flipping any one bit of the body breaks the signature."""
    changed = bytearray(body)
    changed[position % len(body)] ^= 1 << bit
    with pytest.raises(SignatureError, match="accepted secrets"):
        verify(sign(body, NEW, NOW), bytes(changed), [NEW], NOW)


@given(st.text(max_size=120))
def test_any_header_text_is_answered_with_a_reason(header: str) -> None:
    """Rubbish in the header never raises anything but SignatureError."""
    with pytest.raises(SignatureError) as caught:
        verify(header, BODY, [NEW], NOW)
    assert caught.value.reason in {"SIGNATURE_MISSING", "SIGNATURE_MALFORMED"}


def test_rotation_accepts_both_and_then_only_the_new() -> None:
    """While two secrets are held both sign; once the old one is dropped it is refused."""
    header = sign(BODY, OLD, NOW)
    assert verify(header, BODY, [NEW, OLD], NOW) == NOW
    with pytest.raises(SignatureError) as caught:
        verify(header, BODY, [NEW], NOW)
    assert caught.value.reason == "SIGNATURE_MISMATCH"


@pytest.mark.parametrize("skew_s", [-301, 301, 3_600, -600])
def test_skew_beyond_five_minutes_is_refused_and_visible(skew_s: int) -> None:
    """A right signature of another time is refused, with the skew in the facts."""
    with pytest.raises(SignatureError) as caught:
        verify(sign(BODY, NEW, NOW), BODY, [NEW], NOW + skew_s)
    assert caught.value.reason == "SIGNATURE_SKEWED"
    assert caught.value.metadata == {"skew_s": str(skew_s)}


def test_the_time_is_part_of_what_is_signed() -> None:
    """An old signature with a fresh time put in does not verify."""
    header = sign(BODY, NEW, NOW).replace(f"t={NOW}", f"t={NOW + 1}")
    with pytest.raises(SignatureError) as caught:
        verify(header, BODY, [NEW], NOW)
    assert caught.value.reason == "SIGNATURE_MISMATCH"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: value + ",v1=" + "0" * 64,
        lambda value: " " + value,
        lambda value: value + "\n",
        lambda value: value.replace("t=", "t=0"),
        lambda value: value.replace("t=", "t=+"),
        lambda value: value.replace(",", ", "),
        lambda value: value.upper(),
        lambda value: value[:-1],
        lambda value: value.replace("1", "١"),
    ],
)
def test_the_parse_is_strict(spoil: object) -> None:
    """A second v1, spaces, signs, leading zeros, other digits and case are malformed."""
    assert callable(spoil)
    with pytest.raises(SignatureError) as caught:
        verify(spoil(sign(BODY, NEW, NOW)), BODY, [NEW], NOW)
    assert caught.value.reason == "SIGNATURE_MALFORMED"


def test_a_missing_header_is_said() -> None:
    """No header is a reason of its own."""
    with pytest.raises(SignatureError) as caught:
        verify(None, BODY, [NEW], NOW)
    assert caught.value.reason == "SIGNATURE_MISSING"


def test_standard_webhooks_libraries_accept_our_deliveries() -> None:
    """The headers beside ours verify with the Standard Webhooks reference library."""
    at_s = int(datetime.now(UTC).timestamp())
    headers = delivery_headers(BODY, NEW, event_id="evt-1", at_s=at_s)
    standardwebhooks.Webhook(NEW.text).verify(BODY, headers)
    assert verify(headers[SIGNATURE_HEADER], BODY, [NEW], at_s) == at_s
    assert all(name == name.lower() for name in headers)


def test_secrets_read_back_and_stay_out_of_repr() -> None:
    """A generated secret survives its text form and never shows in repr."""
    secret = SigningSecret.generate()
    assert SigningSecret.parse(secret.text) == secret
    assert secret.text.removeprefix("whsec_") not in repr(secret)
    assert repr(secret.raw) not in repr(secret)


@pytest.mark.parametrize("text", ["", "plain", "whsec_", "whsec_!!", "whsec_c2hvcnQ="])
def test_weak_or_malformed_secrets_are_refused_unquoted(text: str) -> None:
    """Short and malformed secrets are refused without repeating them."""
    with pytest.raises(InvalidArgumentError) as caught:
        SigningSecret.parse(text)
    assert not text or text not in caught.value.message.replace("`whsec_`", "")
