"""What an agent can be told, read once from TDP_AGENT_… variables."""

import os
import socket
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from foundation.backoff import BackoffPolicy
from foundation.metrics.settings import MetricsSettings
from foundation.settings import ServiceSettings

_ENDING_S = 2.0


class AgentSettings(ServiceSettings, MetricsSettings):
    """Settings of one agent."""

    model_config = SettingsConfigDict(env_prefix="TDP_AGENT_")
    variables_read_elsewhere: ClassVar[frozenset[str]] = frozenset()

    control_plane: str = Field(
        "127.0.0.1:7300",
        description="Where the control plane serves gRPC, HOST:PORT; several with commas between.",
    )
    tls: bool = Field(default=False, description="Whether to speak TLS to the control plane.")
    tls_ca_path: Path | None = Field(
        None, description="PEM of the CA to trust; without it the system's."
    )
    tls_certificate_path: Path | None = Field(
        None, description="PEM certificate chain of this agent (mTLS)."
    )
    tls_private_key_path: Path | None = Field(
        None, description="PEM private key that belongs to the certificate."
    )
    tls_server_name: str | None = Field(
        None, description="Name that the control plane's certificate has, if not its address's."
    )
    state_folder: Path = Field(
        Path("var/agent"), description="Folder of this agent alone: journal, credential, work."
    )
    node_name: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        max_length=100,
        description="Name under which this agent enrols; unique among the nodes.",
    )
    join_token: SecretStr | None = Field(
        None, description="Join token (tdp_join_…); needed once, to enrol."
    )
    slots: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=1,
        le=1_000,
        description="Attempts that run in child processes at once; one warm child each.",
    )
    inline_slots: int = Field(
        64,
        ge=1,
        le=9_000,
        description="Attempts of inline capabilities held at once, where one is loaded.",
    )
    gpu_count: int | None = Field(
        None,
        ge=0,
        le=1_000,
        description="GPUs to offer; without it, those whose device files are there are counted.",
    )
    capabilities: tuple[str, ...] | None = Field(
        None,
        description="Capabilities to load, as a JSON list of PACKAGE.MODULE:NAME; without it, "
        "all that are installed.",
    )
    memory_bytes_max: int = Field(
        2 * 1024**3, ge=64 * 1024**2, description="Memory of a child whose step names no limit."
    )
    stop_grace_s: float = Field(
        5.0, gt=0, description="Seconds that stopped work gets before its child is killed."
    )
    disk_bytes_min: int = Field(
        64 * 1024**2, ge=0, description="With less free disk than this no new work is taken."
    )
    drain_grace_s: float = Field(
        30.0, ge=0, description="Seconds that running attempts get when the agent is to stop."
    )
    flush_s: float = Field(
        5.0, ge=0, description="Seconds that stored events get to leave when the agent stops."
    )
    shutdown_grace_s: float = Field(
        50.0, gt=0, le=600, description="Seconds that an ordered shutdown may take in all."
    )
    reconnect_base_s: float = Field(
        1.0, gt=0, description="Wait before the second try to connect; it doubles from there."
    )
    reconnect_cap_s: float = Field(
        30.0, gt=0, description="Longest wait between two tries to connect or to send an event."
    )

    @field_validator("control_plane")
    @classmethod
    def _targets_are_named(cls, value: str) -> str:
        targets = [one.strip() for one in value.split(",")]
        for target in targets:
            host, _, port = target.rpartition(":")
            if not host or not port.isdecimal():
                message = f"{target!r} is not HOST:PORT"
                raise ValueError(message)
        return ",".join(targets)

    @model_validator(mode="after")
    def _tls_is_whole(self) -> "AgentSettings":
        if (self.tls_certificate_path is None) != (self.tls_private_key_path is None):
            message = "mTLS needs both the certificate and the private key: set both or neither"
            raise ValueError(message)
        if self.tls_certificate_path is not None and not self.tls:
            message = "a certificate is given, but TDP_AGENT_TLS is off: set it to true"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _times_fit(self) -> "AgentSettings":
        needed_s = self.drain_grace_s + self.stop_grace_s + self.flush_s + _ENDING_S
        if needed_s > self.shutdown_grace_s:
            message = (
                f"drain_grace_s, stop_grace_s and flush_s need {needed_s:g} s together with the "
                f"ending: raise shutdown_grace_s from {self.shutdown_grace_s:g}"
            )
            raise ValueError(message)
        if self.reconnect_base_s > self.reconnect_cap_s:
            message = "reconnect_base_s is above reconnect_cap_s: lower it"
            raise ValueError(message)
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        """The control plane's addresses."""
        return tuple(self.control_plane.split(","))

    @property
    def backoff(self) -> BackoffPolicy:
        """How long to wait before the next try to connect."""
        return BackoffPolicy(self.reconnect_base_s, self.reconnect_cap_s, jitter_fraction=0.5)
