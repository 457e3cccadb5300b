"""Which URLs of a business system may be named; the address is checked again when dialled."""

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from control_plane.core.applications.addresses import is_public
from control_plane.core.errors import ControlPlaneError
from foundation.errors import InvalidArgumentError

URL_CHARS_MAX: Final = 2_000
CALLBACK_SCHEMES: Final = ("https", "http", "grpcs", "grpc")
PROVIDER_SCHEMES: Final = ("grpcs", "grpc")
_INSECURE: Final = frozenset({"http", "grpc"})


class EndpointRefusedError(ControlPlaneError, InvalidArgumentError):
    """The URL is malformed, insecure, or names a network that is not to be called."""

    reason = "ENDPOINT_REFUSED"


@dataclass(frozen=True, slots=True)
class EndpointPolicy:
    """What this installation allows: http and grpc without TLS, and private networks."""

    insecure_allowed: bool = False
    private_allowed: bool = False


def check_endpoint(url: str, field: str, schemes: tuple[str, ...], policy: EndpointPolicy) -> str:
    """Return the URL if it may be named; EndpointRefusedError says why not.

    Empty stays empty. A host name is judged by the address that is dialled, later.
    """
    if not url:
        return ""
    parts = _split(url, field)
    if parts.scheme not in schemes:
        raise _refused(field, url, f"its scheme is none of {', '.join(schemes)}")
    if parts.scheme in _INSECURE and not policy.insecure_allowed:
        raise _refused(field, url, "it is not encrypted: use https or grpcs")
    if parts.username is not None or parts.password is not None:
        raise _refused(field, url, "it carries a user name: leave it out")
    if not policy.private_allowed and _is_private(parts.hostname or ""):
        raise _refused(field, url, "it is on a private, loopback or link-local network")
    return url


def _split(url: str, field: str) -> SplitResult:
    if len(url) > URL_CHARS_MAX or any(ord(one) <= ord(" ") for one in url):
        raise _refused(field, url[:100], f"it has spaces or over {URL_CHARS_MAX} characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refused(field, url, f"it is malformed ({error})") from None
    if not parts.hostname:
        raise _refused(field, url, "it names no host")
    if parts.scheme in PROVIDER_SCHEMES and port is None:
        raise _refused(field, url, "a gRPC address needs its port: grpcs://host:port")
    return parts


def _is_private(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return not is_public(str(address))


def _refused(field: str, url: str, why: str) -> EndpointRefusedError:
    return EndpointRefusedError.of_field(
        field, f"{url!r} is refused: {why}", reason="ENDPOINT_REFUSED"
    )
