"""Settings of the metrics endpoint, to be mixed into a process's settings."""

from pydantic import Field

from foundation.settings import TdpSettings


class MetricsSettings(TdpSettings):
    """Where to serve metrics, if at all."""

    metrics_host: str = Field("127.0.0.1", description="Address to serve Prometheus metrics on.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="Port to serve Prometheus metrics on; 0 takes a free one, none serves none.",
    )
