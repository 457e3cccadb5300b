"""What a control plane can be told, read once from TDP_CONTROL_… variables."""

from datetime import timedelta

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict

from control_plane.core.nodes.leases import LeaseFigures
from control_plane.core.retention.domain import RetentionAges
from control_plane.limits import CLAIM_TTL_S_DEFAULT
from foundation.grpc.settings import GrpcServerSettings
from foundation.metrics.settings import MetricsSettings
from foundation.secrets import KeyRing
from foundation.settings import ServiceSettings

_SHA256_HEX_CHARS = 64


class ControlPlaneSettings(ServiceSettings, GrpcServerSettings, MetricsSettings):
    """Settings of one replica; all replicas of one database share all but the addresses."""

    model_config = SettingsConfigDict(env_prefix="TDP_CONTROL_")

    database_dsn: SecretStr = Field(description="DSN of the control plane's own database.")
    database_pool_size_max: int = Field(
        16, ge=4, le=200, description="Connections of this replica, heartbeats' own apart."
    )
    nats_url: str = Field("nats://127.0.0.1:4222", description="Where NATS with JetStream is.")
    nats_stream_bytes_max: int = Field(
        256 * 1024 * 1024, ge=1024 * 1024, description="Bound of the wake-up stream in bytes."
    )
    secret_keys: SecretStr = Field(
        description="Keys for secrets at rest, VERSION:BASE64[,VERSION:BASE64…]; highest seals."
    )
    bootstrap_admin_key_sha256: str = Field(
        "",
        description="SHA-256 (hex) of an operator key with all scopes that exists from the start.",
    )
    bootstrap_admin_name: str = Field("admin", description="Name of that operator.")
    insecure_endpoints_allowed: bool = Field(
        default=False, description="Allow http:// and grpc:// callbacks, providers and grants."
    )
    private_endpoints_allowed: bool = Field(
        default=False, description="Allow callbacks and providers on private and loopback networks."
    )
    lease_ttl_s: float = Field(60.0, gt=0, description="How long a renewed lease lasts.")
    heartbeat_interval_s: float = Field(5.0, gt=0, description="How often nodes send heartbeats.")
    scheduling_ttl_s: float = Field(
        15.0, gt=0, description="A node not heard of for longer gets no new work."
    )
    stop_budget_s: float = Field(
        5.0, ge=0, description="The longest that a node takes to end an attempt past its deadline."
    )
    claim_ttl_s: float = Field(
        CLAIM_TTL_S_DEFAULT, gt=0, description="How long an outbox claim lasts."
    )
    backoff_cap_s: float = Field(
        3600.0, gt=0, description="Cap of every durable back-off; tests make it small."
    )
    sweep_interval_s: float = Field(
        5.0, gt=0, description="How often loops look for what no wake-up announced."
    )
    queued_executions_max: int = Field(
        100_000, ge=1, description="Queued executions of one application before it is refused."
    )

    retention_s: float | None = Field(
        None,
        ge=86_400,
        description="Tasks that are over for longer are removed, with all their evidence; "
        "without it, none ever is.",
    )
    retention_batch: int = Field(
        100, ge=1, le=1_000, description="Executions that one transaction of retention looks at."
    )
    wakeup_retention_s: float = Field(
        7 * 86_400.0, ge=60, description="Delivered wake-ups older than this are removed."
    )

    @field_validator("secret_keys")
    @classmethod
    def _keys_are_readable(cls, value: SecretStr) -> SecretStr:
        KeyRing.parse(value.get_secret_value())
        return value

    @field_validator("bootstrap_admin_key_sha256")
    @classmethod
    def _hash_is_hexadecimal(cls, value: str) -> str:
        if value and (len(value) != _SHA256_HEX_CHARS or not _is_hexadecimal(value)):
            message = "is not a SHA-256 in hexadecimal (64 characters)"
            raise ValueError(message)
        return value

    @property
    def key_ring(self) -> KeyRing:
        """The keys for secrets at rest."""
        return KeyRing.parse(self.secret_keys.get_secret_value())

    @property
    def retention_ages(self) -> RetentionAges:
        """How long what is kept."""
        finished = None if self.retention_s is None else timedelta(seconds=self.retention_s)
        return RetentionAges(finished, timedelta(seconds=self.wakeup_retention_s))

    @property
    def figures(self) -> LeaseFigures:
        """The times that nodes and control planes share."""
        return LeaseFigures(
            lease_ttl_s=self.lease_ttl_s,
            heartbeat_interval_s=self.heartbeat_interval_s,
            scheduling_ttl_s=self.scheduling_ttl_s,
            stop_budget_s=self.stop_budget_s,
        )


def _is_hexadecimal(text: str) -> bool:
    try:
        bytes.fromhex(text)
    except ValueError:
        return False
    return True
