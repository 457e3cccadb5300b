"""A store on loopback that knows ranges as S3 does, and fails as it is told, request by request."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from aiohttp import web

from node_agent.core.execution.ports import Grant


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request; everything unset is as it should be."""

    status: int = 0
    cut_after_bytes: int = -1
    silent_after_bytes: int = -1
    corrupt: bool = False
    no_range: bool = False
    new_content: bytes = b""


@dataclass
class FaultyStore:
    """Objects by name; `faults` are used up one a request, `ranges` are what was asked for."""

    base_url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    faults: deque[Fault] = field(default_factory=deque)
    ranges: list[str] = field(default_factory=list)
    grants: list[str] = field(default_factory=list)
    raw_paths: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    taken: asyncio.Event = field(default_factory=asyncio.Event)

    def grant(
        self,
        name: str,
        method: Literal["GET", "PUT"] = "GET",
        *,
        lasts_s: float = 600,
        size_bytes: int = 0,
        sha256: bytes = b"",
    ) -> Grant:
        self.grants.append(name)
        return Grant(
            grant_id=f"{len(self.grants)}",
            resource_ref=name,
            method=method,
            url=f"{self.base_url}/{name}?X-Amz-Signature=secret{len(self.grants)}",
            headers={},
            expires_at=datetime.now(UTC) + timedelta(seconds=lasts_s),
            size_bytes=size_bytes,
            sha256=sha256,
        )

    async def serve(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults.popleft() if self.faults else Fault()
        name = request.match_info["name"]
        self.raw_paths.append(request.raw_path)
        self.requests.append(request.query.get("X-Amz-Signature", ""))
        if request.method == "PUT":
            return await self._take(name, request, fault)
        self.ranges.append(request.headers.get("Range", ""))
        if fault.status:
            return web.Response(status=fault.status)
        return await self._give(name, request, fault)

    async def _take(self, name: str, request: web.Request, fault: Fault) -> web.Response:
        body = await request.read()
        if fault.status:
            return web.Response(status=fault.status)
        self.objects[name] = body
        return web.Response(status=200)

    async def _give(self, name: str, request: web.Request, fault: Fault) -> web.StreamResponse:
        if fault.new_content:
            self.objects[name] = fault.new_content
            self.versions[name] = self.versions.get(name, 0) + 1
        if name not in self.objects:
            return web.Response(status=404)
        content, tag = self.objects[name], f'"v{self.versions.get(name, 0)}"'
        if request.headers.get("If-Match", tag) != tag:
            return web.Response(status=412)
        start = 0 if fault.no_range else _start(request)
        response = web.StreamResponse(status=206 if start else 200, headers={"ETag": tag})
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        body = content[start:]
        response.content_length = len(body)
        await response.prepare(request)
        await self._send(response, bytes(b ^ 1 for b in body) if fault.corrupt else body, fault)
        return response

    async def _send(self, response: web.StreamResponse, body: bytes, fault: Fault) -> None:
        for limit, is_silent in ((fault.cut_after_bytes, False), (fault.silent_after_bytes, True)):
            if limit >= 0:
                self.taken.clear()
                await response.write(body[:limit])
                # A cut takes with it what the client has not read yet: let it have read some.
                await self.taken.wait()
                if is_silent:
                    await self.released.wait()
                elif response._req is not None and response._req.transport is not None:
                    response._req.transport.close()
                return
        await response.write(body)


def _start(request: web.Request) -> int:
    asked = request.headers.get("Range", "")
    return int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0


@asynccontextmanager
async def running() -> AsyncIterator[FaultyStore]:
    store = FaultyStore()
    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{name:.+}", store.serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    store.base_url = f"http://{host}:{port}"
    try:
        yield store
    finally:
        store.released.set()
        await runner.cleanup()
