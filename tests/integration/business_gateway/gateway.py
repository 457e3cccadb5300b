"""A whole gateway for tests: real PostgreSQL, S3, REST and gRPC; only the platform is scripted."""

import asyncio
import hashlib
import io
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp

from business_gateway.bootstrap import Gateway
from business_gateway.core.orders.evidence import PlatformEvidence
from business_gateway.parts import SyncParts
from business_gateway.settings import GatewaySettings
from foundation.errors import TdpError
from foundation.lifecycle import StopRequest, Supervision, run_services
from foundation.postgres.pool import Database
from foundation.signatures import SigningSecret
from tests.fixtures.databases import FreshDatabase
from tools.dev_stack import ObjectStoreAccess

API_KEY = "tdp_key_of-the-tests"
OPERATOR_KEY = "tdp_key_of-an-operator"
PROVIDER_SECRET = "provider-secret-of-the-tests"
APPLICATION_ID = "0190a000-0000-7000-8000-00000000a001"
ASSET_BYTES_MAX = 6 * 1024 * 1024


@dataclass
class ScriptedDesk:
    """Stands for the platform as the page sees it; knows one operator."""

    details: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)
    failure: TdpError | None = None

    async def is_operator(self, key: str) -> bool:
        return key == OPERATOR_KEY

    async def call(self, method: str, body: Mapping[str, Any], operator_key: str) -> dict[str, Any]:
        self.calls.append((method, dict(body), operator_key))
        if self.failure is not None:
            raise self.failure
        return {"nodes": []}

    async def task_details(self, task_id: str) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        return {"task": {"task_id": task_id}, **self.details}

    async def waiting(self, task_ids: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        return {one: {"waiting_for": "a node", "paused": False} for one in task_ids}


@dataclass
class ScriptedPlatform:
    """Stands for the half of the gateway that talks with the platform."""

    evidence: PlatformEvidence | None = None
    failure: TdpError | None = None
    wakes: int = 0
    desk: ScriptedDesk = field(default_factory=ScriptedDesk)

    async def get_evidence(self, order_id: str) -> PlatformEvidence | None:
        if self.failure is not None:
            raise self.failure
        return self.evidence

    def commands_added(self) -> None:
        self.wakes += 1


@dataclass
class Client:
    """A client of the REST interface with the tests' API key."""

    base_url: str
    _session: aiohttp.ClientSession = field(init=False)

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {API_KEY}"}
        self._session = aiohttp.ClientSession(self.base_url, headers=headers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        return self._session

    async def call(
        self, method: str, path: str, *, key: str | None = None, **options: Any
    ) -> tuple[int, Any, Any]:
        """Send a request; answer its status, its JSON (None without) and its headers."""
        headers = dict(options.pop("headers", {}))
        if key is not None:
            headers["Idempotency-Key"] = key
        async with self._session.request(
            method, path, headers=headers, allow_redirects=False, **options
        ) as answer:
            body = await answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "")
            found = await answer.json(content_type=None) if is_json and body else None
            return answer.status, found, answer.headers

    async def ready_asset(self, content: bytes = b"") -> str:
        """Upload a ZIP through the gateway and answer its id."""
        status, asset, _ = await self.call(
            "POST", "/api/v1/assets/content?name=a.zip", data=content or zip_bytes()
        )
        assert (status, asset["state"]) == (201, "READY")
        return str(asset["asset_id"])

    async def order(self, key: str, **changes: str) -> dict[str, Any]:
        """Create an order of a new asset."""
        body = {"name": "Photos", "processing_mode": "ARCHIVE_CLEAN_ONLY", **changes}
        if "source_asset_id" not in body:
            body["source_asset_id"] = await self.ready_asset()
        status, order, _ = await self.call("POST", "/api/v1/orders", key=key, json=body)
        assert status == 202, order
        return dict(order)


@dataclass(frozen=True, slots=True)
class Running:
    """A gateway that serves, its client and its scripted platform."""

    gateway: Gateway
    client: Client
    platform: ScriptedPlatform
    stop: StopRequest

    @property
    def database(self) -> Database:
        return self.gateway.database


@asynccontextmanager
async def serving(database: FreshDatabase, bucket: ObjectStoreAccess) -> AsyncIterator[Running]:
    """Run a gateway on free ports until the end of the block."""
    platform = ScriptedPlatform()

    def build_sync(*_: object) -> SyncParts:
        return SyncParts(evidence=platform, commands=platform, desk=platform.desk)

    gateway = Gateway(settings_for(database, bucket), build_sync)
    await gateway.open()
    stop, ready = StopRequest(), asyncio.Event()
    supervision = Supervision(on_ready=ready.set)
    running = asyncio.create_task(
        run_services(gateway.services(), stop, supervision), name="gateway"
    )
    try:
        await _first_of(ready, running)
        async with Client(f"http://127.0.0.1:{gateway.rest_server.port}") as client:
            yield Running(gateway, client, platform, stop)
    finally:
        stop.make("the test ends")
        await running
        await gateway.close()


def settings_for(database: FreshDatabase, bucket: ObjectStoreAccess) -> GatewaySettings:
    return GatewaySettings(
        database_dsn=database.dsn,
        rest_port=0,
        grpc_port=0,
        api_key_sha256=hashlib.sha256(API_KEY.encode()).hexdigest(),
        application_id=APPLICATION_ID,
        control_plane_api_key="unused",
        provider_secret=PROVIDER_SECRET,
        callback_secret_current=SigningSecret(b"s" * 32).text,
        s3_endpoint_url=bucket.endpoint_url,
        s3_access_key=bucket.access_key,
        s3_secret_key=bucket.secret_key,
        s3_bucket=bucket.bucket,
        s3_region=bucket.region,
        asset_size_bytes_max=ASSET_BYTES_MAX,
    )


def zip_bytes(name: str = "a.txt", content: bytes = b"hello") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


async def _first_of(ready: asyncio.Event, running: "asyncio.Task[None]") -> None:
    waiting = asyncio.create_task(ready.wait(), name="ready")
    await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        running.result()
