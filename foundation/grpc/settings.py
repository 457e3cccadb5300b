"""Settings of a gRPC server, to be mixed into a process's settings."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from foundation.grpc.server import ServerConfig, ServerTls
from foundation.settings import TdpSettings


class GrpcServerSettings(TdpSettings):
    """Where to serve gRPC and how."""

    grpc_host: str = Field("127.0.0.1", description="Address to listen on for gRPC.")
    grpc_port: int = Field(
        0, ge=0, le=65_535, description="Port to listen on for gRPC; 0 takes a free one."
    )
    grpc_reflection: bool = Field(
        default=True, description="Whether clients may list services and messages by reflection."
    )
    grpc_stop_grace_s: float = Field(
        10.0,
        ge=0,
        description="Seconds that calls may go on after the server stops taking new ones.",
    )
    grpc_tls_certificate_path: Path | None = Field(
        None, description="PEM certificate chain of the gRPC server; without it no TLS."
    )
    grpc_tls_key_path: Path | None = Field(
        None, description="PEM private key that belongs to the certificate."
    )
    grpc_tls_client_ca_path: Path | None = Field(
        None, description="PEM of the CA whose certificate every client must show (mTLS)."
    )

    @model_validator(mode="after")
    def _tls_is_complete(self) -> Self:
        given = (self.grpc_tls_certificate_path is not None, self.grpc_tls_key_path is not None)
        if given[0] is not given[1] or (
            self.grpc_tls_client_ca_path is not None and not all(given)
        ):
            raise ValueError(
                "TLS needs both grpc_tls_certificate_path and grpc_tls_key_path, and a client CA "
                "needs TLS"
            )
        return self

    def grpc_server_config(self) -> ServerConfig:
        """Return the server's configuration."""
        tls = None
        if self.grpc_tls_certificate_path is not None and self.grpc_tls_key_path is not None:
            tls = ServerTls(
                self.grpc_tls_certificate_path, self.grpc_tls_key_path, self.grpc_tls_client_ca_path
            )
        return ServerConfig(
            host=self.grpc_host,
            port=self.grpc_port,
            tls=tls,
            reflection=self.grpc_reflection,
            stop_grace_s=self.grpc_stop_grace_s,
        )
