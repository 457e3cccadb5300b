"""What a gateway can be told, and what it says about settings that cannot be used."""

import pytest

from business_gateway.settings import GatewaySettings
from foundation.settings import SettingsError, describe_settings, load_settings
from foundation.signatures import SigningSecret

GOOD = {
    "DATABASE_DSN": "postgresql://user:hunter2@host/db",
    "API_KEY_SHA256": "AB" * 32 + ", " + "cd" * 32,
    "APPLICATION_ID": "0190A000-0000-7000-8000-000000000001",
    "CONTROL_PLANE_API_KEY": "tdp_key_x",
    "PROVIDER_SECRET": "p" * 24,
    "CALLBACK_SECRET_CURRENT": SigningSecret(b"a" * 32).text,
    "S3_ENDPOINT_URL": "http://127.0.0.1:9000",
    "S3_ACCESS_KEY": "a",
    "S3_SECRET_KEY": "s3cret",
    "S3_BUCKET": "bucket",
}


def _load(monkeypatch: pytest.MonkeyPatch, **changes: str | None) -> GatewaySettings:
    for name, value in {**GOOD, **changes}.items():
        if value is not None:
            monkeypatch.setenv(f"TDP_GATEWAY_{name}", value)
    return load_settings(GatewaySettings)


def test_good_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes and secrets are parsed, during a rotation the current secret comes first."""
    previous = SigningSecret(b"b" * 32)
    settings = _load(monkeypatch, CALLBACK_SECRET_PREVIOUS=previous.text)
    assert settings.api_key_hashes == (b"\xab" * 32, b"\xcd" * 32)
    assert [one.raw[:1] for one in settings.callback_secrets] == [b"a", b"b"]
    assert settings.application_id == GOOD["APPLICATION_ID"].lower()
    assert "hunter2" not in repr(settings)
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_DSN", None),
        ("API_KEY_SHA256", ""),
        ("API_KEY_SHA256", "ab"),
        ("APPLICATION_ID", "mine"),
        ("PROVIDER_SECRET", "short"),
        ("CALLBACK_SECRET_CURRENT", "whsec_short"),
        ("CALLBACK_SECRET_PREVIOUS", "plain"),
        ("REST_PORT", "70000"),
        ("ASSET_SIZE_BYTES_MAX", "0"),
        ("QUIET_ORDER_S", "-1"),
    ],
)
def test_a_wrong_setting_is_named_and_never_quoted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    """The error names the variable; its value, which may be a secret, is not in it."""
    with pytest.raises(SettingsError) as caught:
        _load(monkeypatch, **{name: value})
    assert [one.field for one in caught.value.field_violations] == [f"TDP_GATEWAY_{name}"]
    if value and len(value) > 4:
        assert value not in caught.value.message


@pytest.mark.parametrize("part", ["REST", "GRPC"])
def test_half_a_certificate_is_refused(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """TLS needs both files."""
    with pytest.raises(SettingsError):
        _load(monkeypatch, **{f"{part}_TLS_KEY_PATH": "/tmp/key.pem"})  # noqa: S108 - never opened


def test_every_setting_says_what_it_means() -> None:
    """Each has a description, for the manual and for check-config."""
    assert all(one.description for one in describe_settings(GatewaySettings))
