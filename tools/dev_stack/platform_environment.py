"""The variables that tell each of TDP's processes where the others are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from foundation.secrets import hash_token
from tools.dev_stack import ports
from tools.dev_stack.platform_profiles import Profile
from tools.dev_stack.platform_state import PlatformState
from tools.dev_stack.stack import Stack


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of all data, and how many control planes share the agents and gateways."""

    data_folder: Path
    control_planes: int


class Surroundings:
    """Addresses, databases and secrets of one platform, as variables of its processes."""

    control_database: Final = "tdp_control"
    gateway_database: Final = "tdp_gateway"

    def __init__(self, place: Place, profile: Profile, stack: Stack, state: PlatformState) -> None:
        """Take what the folder remembers; the servers' addresses are read when asked for."""
        self._place = place
        self._profile = profile
        self._stack = stack
        self._state = state
        self.application_id = state.application_id

    def port(self, name: str) -> int:
        """The port chosen for this name."""
        return self._state.chosen_ports[name]

    def address(self, name: str) -> str:
        """The port chosen for this name, with the host."""
        return f"{ports.HOST}:{self.port(name)}"

    @property
    def provider_url(self) -> str:
        """Where control planes ask for access to bytes: the first gateway."""
        return f"grpc://{self.address('gateway-1-grpc')}"

    def control_plane(self, name: str) -> Mapping[str, str]:
        """Variables of a control plane."""
        secrets = self._state.secrets
        return {
            "TDP_CONTROL_DATABASE_DSN": self._stack.postgres_dsn(self.control_database),
            "TDP_CONTROL_NATS_URL": self._stack.nats_url,
            "TDP_CONTROL_GRPC_HOST": ports.HOST,
            "TDP_CONTROL_GRPC_PORT": str(self.port(name)),
            "TDP_CONTROL_SECRET_KEYS": secrets.key_ring,
            "TDP_CONTROL_BOOTSTRAP_ADMIN_KEY_SHA256": hash_token(secrets.admin_key).hex(),
            # Everything here is on loopback and without certificates.
            "TDP_CONTROL_INSECURE_ENDPOINTS_ALLOWED": "true",
            "TDP_CONTROL_PRIVATE_ENDPOINTS_ALLOWED": "true",
            **self._profile.control_plane,
        }

    def gateway(self, name: str) -> Mapping[str, str]:
        """Variables of a gateway."""
        secrets, s3 = self._state.secrets, self._stack.s3
        return {
            "TDP_GATEWAY_DATABASE_DSN": self._stack.postgres_dsn(self.gateway_database),
            "TDP_GATEWAY_REST_HOST": ports.HOST,
            "TDP_GATEWAY_REST_PORT": str(self.port(name)),
            "TDP_GATEWAY_GRPC_HOST": ports.HOST,
            "TDP_GATEWAY_GRPC_PORT": str(self.port(f"{name}-grpc")),
            "TDP_GATEWAY_API_KEY_SHA256": hash_token(secrets.client_key).hex(),
            "TDP_GATEWAY_CONTROL_PLANE_ADDRESS": self._control_planes(name)[0],
            "TDP_GATEWAY_CONTROL_PLANE_API_KEY": secrets.submit_key,
            "TDP_GATEWAY_APPLICATION_ID": self.application_id,
            "TDP_GATEWAY_CALLBACK_SECRET_CURRENT": secrets.callback_secret,
            "TDP_GATEWAY_PROVIDER_SECRET": secrets.provider_secret,
            "TDP_GATEWAY_S3_ENDPOINT_URL": s3.endpoint_url,
            "TDP_GATEWAY_S3_ACCESS_KEY": s3.access_key,
            "TDP_GATEWAY_S3_SECRET_KEY": s3.secret_key,
            "TDP_GATEWAY_S3_REGION": s3.region,
            "TDP_GATEWAY_S3_BUCKET": s3.bucket,
            **self._profile.gateway,
        }

    def agent(self, name: str) -> Mapping[str, str]:
        """Variables of a node agent; agents are spread over the control planes."""
        return {
            "TDP_AGENT_NODE_NAME": name,
            "TDP_AGENT_CONTROL_PLANE": ",".join(self._control_planes(name)),
            "TDP_AGENT_JOIN_TOKEN": self._state.secrets.join_token,
            "TDP_AGENT_STATE_FOLDER": str(self._place.data_folder / "agents" / name),
            **self._profile.agent,
        }

    def _control_planes(self, name: str) -> list[str]:
        """All addresses; each process begins with another, so that none is everybody's first."""
        count = self._place.control_planes
        first = int(name.rpartition("-")[2]) - 1
        return [
            self.address(f"control-plane-{(first + offset) % count + 1}") for offset in range(count)
        ]
