"""Settings: frozen, validated once, secrets from files, and unknown variables reported."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from foundation.grpc.settings import GrpcServerSettings
from foundation.settings import (
    ServiceSettings,
    SettingsError,
    describe_settings,
    load_settings,
    unknown_variables,
)


class ShopSettings(ServiceSettings):
    """Settings of some process."""

    model_config = SettingsConfigDict(env_prefix="TDP_SHOP_")

    database_url: SecretStr = Field(description="Where the database is.")
    lease_ttl_s: float = Field(30.0, gt=0, description="Seconds a lease lives.")
    optional_key: SecretStr | None = Field(None, description="A key, if any.")
    default_key: SecretStr = Field(SecretStr("hush"), description="A key with a default.")


def test_variables_are_read_and_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values come from variables with the prefix, and cannot be changed afterwards."""
    monkeypatch.setenv("TDP_SHOP_DATABASE_URL", "postgres://u:p@h/d")
    monkeypatch.setenv("TDP_SHOP_LEASE_TTL_S", "2.5")
    settings = load_settings(ShopSettings)
    assert settings.lease_ttl_s == 2.5
    assert settings.database_url.get_secret_value() == "postgres://u:p@h/d"
    assert "u:p" not in repr(settings)
    with pytest.raises(ValidationError):
        settings.lease_ttl_s = 1.0  # type: ignore[misc]  # frozen, as the test shows


def test_every_wrong_variable_is_listed_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing and wrong variables are named together; the values are not repeated."""
    monkeypatch.delenv("TDP_SHOP_DATABASE_URL", raising=False)
    monkeypatch.setenv("TDP_SHOP_LEASE_TTL_S", "-77")
    monkeypatch.setenv("TDP_SHOP_LOG_FORMAT", "xml")
    with pytest.raises(SettingsError) as caught:
        load_settings(ShopSettings)
    assert {one.field for one in caught.value.field_violations} == {
        "TDP_SHOP_DATABASE_URL",
        "TDP_SHOP_LEASE_TTL_S",
        "TDP_SHOP_LOG_FORMAT",
    }
    assert "-77" not in caught.value.message


class ListSettings(ServiceSettings):
    """Settings with a list."""

    model_config = SettingsConfigDict(env_prefix="TDP_LIST_")

    names: tuple[str, ...] = Field((), description="Names.")


def test_lists_are_json_and_named_when_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is read from JSON; another text is refused without being repeated."""
    monkeypatch.setenv("TDP_LIST_NAMES", '["a","b"]')
    assert load_settings(ListSettings).names == ("a", "b")
    monkeypatch.setenv("TDP_LIST_NAMES", "hunter2")
    with pytest.raises(SettingsError, match="names") as caught:
        load_settings(ListSettings)
    assert "hunter2" not in caught.value.message


def test_a_secret_may_be_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """…_FILE names the secret's file, whose last line break is not part of it."""
    path = tmp_path / "secret"
    path.write_text("from-file\n")
    monkeypatch.delenv("TDP_SHOP_DATABASE_URL", raising=False)
    monkeypatch.setenv("TDP_SHOP_DATABASE_URL_FILE", str(path))
    monkeypatch.setenv("TDP_SHOP_OPTIONAL_KEY_FILE", str(path))
    settings = load_settings(ShopSettings)
    assert settings.database_url.get_secret_value() == "from-file"
    assert settings.optional_key is not None
    assert settings.optional_key.get_secret_value() == "from-file"


def test_secret_files_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An absent or huge file, and a variable beside its file, are refused by name."""
    monkeypatch.delenv("TDP_SHOP_DATABASE_URL", raising=False)
    monkeypatch.setenv("TDP_SHOP_DATABASE_URL_FILE", str(tmp_path / "absent"))
    with pytest.raises(SettingsError, match=r"TDP_SHOP_DATABASE_URL_FILE: .*No such file"):
        load_settings(ShopSettings)
    (tmp_path / "absent").write_bytes(b"x" * 70_000)
    with pytest.raises(SettingsError, match="no secret"):
        load_settings(ShopSettings)
    monkeypatch.setenv("TDP_SHOP_DATABASE_URL", "x")
    with pytest.raises(SettingsError, match="use one of them"):
        load_settings(ShopSettings)


def test_unknown_variables_are_reported_with_a_near_name() -> None:
    """A misspelt variable is found with what was probably meant; known ones are not."""
    environ = {
        "TDP_SHOP_LEASE_TTL": "3",
        "TDP_SHOP_DATABASE_URL_FILE": "x",
        "TDP_SHOP_LOG_LEVEL_FILE": "x",
        "TDP_SHOP_ZZZZ": "x",
        "TDP_FAILPOINTS": "",
        "TDP_OTHER": "x",
        "HOME": "/",
    }
    assert unknown_variables(ShopSettings, environ) == {
        "TDP_SHOP_LEASE_TTL": "TDP_SHOP_LEASE_TTL_S",
        "TDP_SHOP_LOG_LEVEL_FILE": "TDP_SHOP_LOG_LEVEL",
        "TDP_SHOP_ZZZZ": None,
    }


def test_failpoint_variables_are_known_to_everybody() -> None:
    """Variables that the failpoints read are never reported."""
    environ = {"TDP_FAILPOINTS": "", "TDP_FAILPOINT_HITS": "", "TDP_LOG_LEVEL": "info"}
    assert unknown_variables(ServiceSettings, environ) == {}


def test_the_description_covers_every_setting_without_secrets() -> None:
    """Each setting has its variable, type, default and meaning; secret defaults are hidden."""
    docs = {one.variable: one for one in describe_settings(ShopSettings)}
    assert docs["TDP_SHOP_DATABASE_URL"].default is None
    assert docs["TDP_SHOP_DATABASE_URL"].secret
    assert docs["TDP_SHOP_OPTIONAL_KEY"].secret
    assert docs["TDP_SHOP_LEASE_TTL_S"].default == "30.0"
    assert docs["TDP_SHOP_DEFAULT_KEY"].default == "**********"
    assert "TDP_SHOP_SHUTDOWN_GRACE_S" in docs
    assert all(one.description for one in docs.values())


class ServerSettings(GrpcServerSettings, ServiceSettings):
    """Settings of a process that serves gRPC."""

    model_config = SettingsConfigDict(env_prefix="TDP_SERVER_")


def test_grpc_settings_make_a_server_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Address, reflection and TLS files come from variables of the mixing class's prefix."""
    monkeypatch.setenv("TDP_SERVER_GRPC_HOST", "::1")
    monkeypatch.setenv("TDP_SERVER_GRPC_REFLECTION", "false")
    monkeypatch.setenv("TDP_SERVER_GRPC_TLS_CERTIFICATE_PATH", "/tls/chain.pem")
    monkeypatch.setenv("TDP_SERVER_GRPC_TLS_KEY_PATH", "/tls/key.pem")
    config = load_settings(ServerSettings).grpc_server_config()
    assert (config.host, config.port, config.reflection) == ("::1", 0, False)
    assert config.tls is not None
    assert config.tls.private_key_path == Path("/tls/key.pem")
    assert load_settings(ServerSettings).log_level == "info"


@pytest.mark.parametrize("half", ["CERTIFICATE", "KEY", "CLIENT_CA"])
def test_half_of_tls_is_refused(monkeypatch: pytest.MonkeyPatch, half: str) -> None:
    """A certificate without its key, a key alone, or a client CA without TLS is refused."""
    monkeypatch.setenv(f"TDP_SERVER_GRPC_TLS_{half}_PATH", "/tls/x.pem")
    with pytest.raises(SettingsError, match="TLS needs both"):
        load_settings(ServerSettings)
