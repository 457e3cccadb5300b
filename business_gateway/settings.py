"""What a gateway can be told, read once from TDP_GATEWAY_… variables."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from business_gateway.core.orders.commands import WorkflowChoice, Workflows
from business_gateway.core.orders.domain import ProcessingMode
from foundation.errors import InvalidArgumentError
from foundation.ids import parse_id
from foundation.metrics.settings import MetricsSettings
from foundation.settings import ServiceSettings
from foundation.signatures import SigningSecret

Parsed = TypeVar("Parsed")

_SHA256_HEX = re.compile(r"[0-9a-f]{64}")
_WORKFLOW = r"^[^@\s]+@[^@\s]+$"
_PROVIDER_SECRET_CHARS_MIN = 24
_PROVIDER_SECRET_CHARS_MAX = 512


class GatewaySettings(ServiceSettings, MetricsSettings):
    """Settings of one replica; all replicas of one database share all but the addresses."""

    model_config = SettingsConfigDict(env_prefix="TDP_GATEWAY_")
    variables_read_elsewhere: ClassVar[frozenset[str]] = frozenset()

    database_dsn: SecretStr = Field(description="DSN of the gateway's own database.")
    database_pool_size_max: int = Field(
        16, ge=4, le=200, description="Connections of this replica to its database."
    )
    rest_host: str = Field("127.0.0.1", description="Address to serve REST on.")
    rest_port: int = Field(7400, ge=0, le=65_535, description="Port to serve REST on; 0: any.")
    rest_tls_certificate_path: Path | None = Field(None, description="PEM chain of REST.")
    rest_tls_key_path: Path | None = Field(None, description="PEM key of that certificate.")
    grpc_host: str = Field("127.0.0.1", description="Address to serve gRPC on.")
    grpc_port: int = Field(7410, ge=0, le=65_535, description="Port to serve gRPC on; 0: any.")
    grpc_reflection: bool = Field(default=True, description="Offer server reflection.")
    grpc_tls_certificate_path: Path | None = Field(None, description="PEM chain of gRPC.")
    grpc_tls_key_path: Path | None = Field(None, description="PEM key of that certificate.")
    api_key_sha256: str = Field(
        description="SHA-256 (hex) of the API keys that clients may use, comma separated."
    )
    application_id: str = Field(description="The gateway's application at the control plane.")
    control_plane_address: str = Field(
        "127.0.0.1:7300", description="Address (host:port) of the control plane's gRPC."
    )
    control_plane_api_key: SecretStr = Field(description="The application's API key there.")
    control_plane_tls: bool = Field(default=False, description="Speak TLS to the control plane.")
    control_plane_ca_path: Path | None = Field(
        None, description="PEM CA of its certificate; empty means the system's."
    )
    provider_secret: SecretStr = Field(
        description="What the control plane sends to be given access to bytes (24 to 512 chars)."
    )
    callback_secret_current: SecretStr = Field(
        description="Secret (whsec_…) that callbacks are signed with."
    )
    callback_secret_previous: SecretStr | None = Field(
        None, description="The secret before it, accepted during a rotation."
    )
    s3_endpoint_url: str = Field(description="The S3 server, as this process reaches it.")
    s3_public_endpoint_url: str = Field(
        "", description="The same server as clients and nodes reach it; empty: the same URL."
    )
    s3_access_key: str = Field(description="Access key of the bucket.")
    s3_secret_key: SecretStr = Field(description="Secret key of the bucket.")
    s3_bucket: str = Field(description="The gateway's own bucket; it must exist.")
    s3_region: str = Field("us-east-1", description="Region that requests are signed for.")
    asset_size_bytes_max: int = Field(
        2 * 1024**3, ge=1, le=5 * 1024**3, description="The most bytes of an asset."
    )
    claim_ttl_s: float = Field(60.0, gt=0, description="How long an outbox claim lasts.")
    backoff_cap_s: float = Field(
        60.0, gt=0, description="Cap of every durable back-off; tests make it small."
    )
    quiet_order_s: float = Field(
        60.0, gt=0, description="An order without news for longer is asked about."
    )
    sweep_interval_s: float = Field(
        10.0, gt=0, description="How often quiet orders and gaps are looked for."
    )
    sweep_orders_max: int = Field(
        100, ge=1, le=1_000, description="The most orders that one sweep asks about."
    )
    uncommitted_ttl_s: float = Field(
        86_400.0, gt=0, description="Uploads and results left undone for longer are removed."
    )
    clean_workflow: str = Field(
        "archive-clean@1",
        pattern=_WORKFLOW,
        description="NAME@VERSION of the workflow of orders that clean only.",
    )
    watermark_workflow: str = Field(
        "archive-clean-then-watermark@1",
        pattern=_WORKFLOW,
        description="NAME@VERSION of the workflow of orders that clean and watermark.",
    )
    drop_callbacks: bool = Field(
        default=False, description="Answer callbacks and drop them, so that only queries tell."
    )

    @field_validator("api_key_sha256")
    @classmethod
    def _hashes_are_hexadecimal(cls, value: str) -> str:
        hashes = [one.strip().lower() for one in value.split(",") if one.strip()]
        if not hashes or not all(_SHA256_HEX.fullmatch(one) for one in hashes):
            message = "is not a list of SHA-256 in hexadecimal (64 characters each)"
            raise ValueError(message)
        return ",".join(hashes)

    @field_validator("application_id")
    @classmethod
    def _application_is_an_id(cls, value: str) -> str:
        return _read(lambda: parse_id(value, "application_id"))

    @field_validator("provider_secret")
    @classmethod
    def _secret_is_long(cls, value: SecretStr) -> SecretStr:
        length = len(value.get_secret_value())
        if not _PROVIDER_SECRET_CHARS_MIN <= length <= _PROVIDER_SECRET_CHARS_MAX:
            message = "needs 24 to 512 characters"
            raise ValueError(message)
        return value

    @field_validator("callback_secret_current", "callback_secret_previous")
    @classmethod
    def _secrets_are_readable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _read(lambda: SigningSecret.parse(value.get_secret_value()))
        return value

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        pairs = {
            "REST": (self.rest_tls_certificate_path, self.rest_tls_key_path),
            "gRPC": (self.grpc_tls_certificate_path, self.grpc_tls_key_path),
        }
        for name, (certificate, key) in pairs.items():
            if (certificate is None) is not (key is None):
                message = f"TLS of {name} needs both the certificate and the key"
                raise ValueError(message)
        return self

    @property
    def api_key_hashes(self) -> tuple[bytes, ...]:
        """The SHA-256 of every key that clients may use."""
        return tuple(bytes.fromhex(one) for one in self.api_key_sha256.split(","))

    @property
    def callback_secrets(self) -> tuple[SigningSecret, ...]:
        """The secrets that callbacks may be signed with, the current one first."""
        given = (self.callback_secret_current, self.callback_secret_previous)
        return tuple(SigningSecret.parse(one.get_secret_value()) for one in given if one)

    @property
    def workflows(self) -> Workflows:
        """What each kind of order runs."""
        chosen = {
            ProcessingMode.ARCHIVE_CLEAN_ONLY: self.clean_workflow,
            ProcessingMode.ARCHIVE_CLEAN_THEN_WATERMARK: self.watermark_workflow,
        }
        return {mode: WorkflowChoice(*text.split("@")) for mode, text in chosen.items()}


def _read(parse: Callable[[], Parsed]) -> Parsed:
    """Parse, with a refusal in the form that the library of settings gathers: a ValueError."""
    try:
        return parse()
    except InvalidArgumentError as error:
        raise ValueError(error.field_violations[0].description) from None
