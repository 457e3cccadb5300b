"""Which network addresses may be dialled on a customer's behalf: our own list, not the library's.

`ipaddress.is_global` has said yes to mapped and translated private addresses, so every
special-purpose block of the IANA registries is named here, and what embeds an IPv4 address
is judged by that address.
"""

import ipaddress
from typing import Final

_DENIED_V4: Final = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# Only 2000::/3 is given out; of it these are special, and the embedding ones are unpacked below.
_ALLOWED_V6: Final = ipaddress.IPv6Network("2000::/3")
_DENIED_V6: Final = tuple(
    ipaddress.IPv6Network(block)
    for block in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")
)
_SIX_TO_FOUR: Final = ipaddress.IPv6Network("2002::/16")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether a literal address may be dialled as a public one; False for what is no address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in block for block in _DENIED_V4)
    return _is_public_v6(parsed)


def _is_public_v6(address: ipaddress.IPv6Address) -> bool:
    if address.ipv4_mapped is not None:
        return is_public(str(address.ipv4_mapped))
    number = int(address)
    if address in _NAT64:
        return is_public(str(ipaddress.IPv4Address(number & 0xFFFFFFFF)))
    if address in _SIX_TO_FOUR:
        return is_public(str(ipaddress.IPv4Address(number >> 80 & 0xFFFFFFFF)))
    return address in _ALLOWED_V6 and not any(address in block for block in _DENIED_V6)
