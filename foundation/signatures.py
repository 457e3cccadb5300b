"""Signatures over webhook bodies: TDP's `t=,v1=` header, and Standard Webhooks beside it.

The header is `t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>." + raw body>`. The very bytes
that are sent are the bytes that are signed, over HTTP as over gRPC (as metadata).
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from foundation.errors import InvalidArgumentError, UnauthenticatedError

SIGNATURE_HEADER: Final = "tdp-signature"
SKEW_S_MAX: Final = 300
SECRET_BYTES_MIN: Final = 24
# The upper bound that Standard Webhooks sets, so that its libraries accept our secrets.
SECRET_BYTES_MAX: Final = 64
_SECRET_PREFIX = "whsec_"  # noqa: S105 - the public prefix of the format, not a secret
_HEADER_SHAPE = re.compile(r"t=(?P<time>0|[1-9][0-9]{0,11}),v1=(?P<mac>[0-9a-f]{64})")


class SignatureError(UnauthenticatedError):
    """A body's signature was refused.

    Reasons: SIGNATURE_MISSING, SIGNATURE_MALFORMED, SIGNATURE_MISMATCH, SIGNATURE_SKEWED.
    """

    reason = "SIGNATURE_MISMATCH"


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """A shared secret of 24 to 64 random bytes; its text form is `whsec_` and base64."""

    raw: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse a secret that is too short to be safe or too long for receivers."""
        if not SECRET_BYTES_MIN <= len(self.raw) <= SECRET_BYTES_MAX:
            raise InvalidArgumentError.of_field(
                "secret",
                f"has {len(self.raw)} bytes: use {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} "
                "random bytes",
                reason="SECRET_LENGTH",
            )

    @classmethod
    def parse(cls, text: str) -> "SigningSecret":
        """Read `whsec_<base64>`; InvalidArgumentError otherwise, never quoting the secret."""
        try:
            if not text.startswith(_SECRET_PREFIX):
                raise ValueError(text)  # noqa: TRY301 - one answer for every malformed text
            raw = base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
        except (ValueError, binascii.Error):
            raise InvalidArgumentError.of_field(
                "secret",
                "is not `whsec_` followed by base64: make one with a password generator",
                reason="SECRET_MALFORMED",
            ) from None
        return cls(raw)

    @classmethod
    def generate(
        cls, random_bytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> "SigningSecret":
        """Make a new secret of 32 random bytes."""
        return cls(random_bytes(32))

    @property
    def text(self) -> str:
        """The form shown once to the receiver's owner: `whsec_<base64>`."""
        return _SECRET_PREFIX + base64.b64encode(self.raw).decode("ascii")


def sign(body: bytes, secret: SigningSecret, at_s: int) -> str:
    """Return the value of the `tdp-signature` header for these bytes at this unix time."""
    return f"t={at_s},v1={_mac(body, secret, str(at_s)).hex()}"


def verify(header: str | None, body: bytes, accepted: Sequence[SigningSecret], now_s: float) -> int:
    """Return the signature's unix time if any accepted secret made it within 5 minutes.

    During a rotation `accepted` holds two secrets. Raises SignatureError; the comparison
    is constant-time, and skew is only reported of a signature that is otherwise right.
    """
    if not header:
        raise SignatureError(
            f"the {SIGNATURE_HEADER} header is missing: sign the raw body",
            reason="SIGNATURE_MISSING",
        )
    match = _HEADER_SHAPE.fullmatch(header)
    if match is None:
        raise SignatureError(
            f"the {SIGNATURE_HEADER} header is not t=<unix seconds>,v1=<64 lower-case hex digits>",
            reason="SIGNATURE_MALFORMED",
        )
    if not _made_by_any(bytes.fromhex(match["mac"]), body, accepted, match["time"]):
        raise SignatureError(
            "the signature fits none of the accepted secrets: check the secret and that the "
            "body is passed on byte for byte"
        )
    return _checked_time(int(match["time"]), now_s)


def delivery_headers(
    body: bytes, secret: SigningSecret, *, event_id: str, at_s: int
) -> dict[str, str]:
    """All signature headers of one delivery try, in lower case (also legal gRPC metadata).

    `webhook-id`, `webhook-timestamp` and `webhook-signature` follow Standard Webhooks 1.0:
    base64 HMAC-SHA256 of "<id>.<timestamp>." + body, by the same secret.
    """
    standard = _mac(body, secret, f"{event_id}.{at_s}")
    return {
        SIGNATURE_HEADER: sign(body, secret, at_s),
        "webhook-id": event_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(standard).decode('ascii')}",
    }


def _mac(body: bytes, secret: SigningSecret, prefix: str) -> bytes:
    return hmac.digest(secret.raw, prefix.encode("utf-8") + b"." + body, hashlib.sha256)


def _made_by_any(
    mac: bytes, body: bytes, accepted: Sequence[SigningSecret], time_text: str
) -> bool:
    # Every secret is tried, so that the time taken does not tell which one fitted.
    fits = [hmac.compare_digest(mac, _mac(body, secret, time_text)) for secret in accepted]
    return any(fits)


def _checked_time(signed_s: int, now_s: float) -> int:
    skew_s = now_s - signed_s
    if abs(skew_s) > SKEW_S_MAX:
        raise SignatureError(
            f"the signature is {skew_s:.0f} s away from this clock, more than {SKEW_S_MAX} s: "
            "check both clocks, and sign each retry anew",
            reason="SIGNATURE_SKEWED",
            metadata={"skew_s": f"{skew_s:.0f}"},
        )
    return signed_s
