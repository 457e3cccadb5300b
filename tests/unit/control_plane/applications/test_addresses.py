"""Which addresses may be dialled for a customer: every special block is refused."""

import pytest

from control_plane.core.applications.addresses import is_public

_PRIVATE = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "fc00::1",
    "fd00::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "not an address",
    "",
]
_PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "172.32.0.1",
    "2606:4700::1111",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
]


@pytest.mark.parametrize("address", _PRIVATE)
def test_special_addresses_are_refused(address: str) -> None:
    """An address of a special-purpose block, or one that embeds such an address, is not public."""
    assert not is_public(address)


@pytest.mark.parametrize("address", _PUBLIC)
def test_public_addresses_pass(address: str) -> None:
    """Ordinary addresses may be dialled."""
    assert is_public(address)
