"""Which callback and provider URLs may be named."""

import pytest

from control_plane.core.applications.endpoints import (
    CALLBACK_SCHEMES,
    PROVIDER_SCHEMES,
    EndpointPolicy,
    EndpointRefusedError,
    check_endpoint,
)

STRICT = EndpointPolicy()
OPEN = EndpointPolicy(insecure_allowed=True, private_allowed=True)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://shop.example/cb", "not encrypted"),
        ("grpc://shop.example:50051", "not encrypted"),
        ("ftp://shop.example/", "scheme"),
        ("https://", "no host"),
        ("https://user:pw@shop.example/", "user name"),
        ("https://127.0.0.1/cb", "private"),
        ("https://localhost/cb", "private"),
        ("https://[::ffff:10.0.0.1]/cb", "private"),
        ("https://shop.example/a b", "spaces"),
        ("https://shop.example:99999/", "malformed"),
        ("grpcs://shop.example", "port"),
    ],
)
def test_a_refused_url_says_why(url: str, words: str) -> None:
    """Each refusal names the field, the URL and the reason."""
    with pytest.raises(EndpointRefusedError, match=words) as refused:
        check_endpoint(url, "callback_url", CALLBACK_SCHEMES, STRICT)
    assert refused.value.field_violations[0].field == "callback_url"


def test_good_urls_pass_and_empty_stays_empty() -> None:
    """Encrypted public URLs pass; an installation for loopback allows the rest."""
    assert check_endpoint("", "callback_url", CALLBACK_SCHEMES, STRICT) == ""
    for url in ("https://shop.example/cb?x=1", "grpcs://shop.example:443"):
        assert check_endpoint(url, "callback_url", CALLBACK_SCHEMES, STRICT) == url
    for url in ("http://127.0.0.1:8080/cb", "grpc://localhost:50051"):
        assert check_endpoint(url, "callback_url", CALLBACK_SCHEMES, OPEN) == url


def test_a_provider_speaks_grpc_only() -> None:
    """A resource provider over HTTP is refused whatever is allowed."""
    with pytest.raises(EndpointRefusedError, match="scheme"):
        check_endpoint("http://127.0.0.1:1/", "resource_provider_url", PROVIDER_SCHEMES, OPEN)
