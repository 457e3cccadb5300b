"""Composition root of the gateway: the only file that names concrete adapters of its half."""

from collections.abc import Callable
from random import Random
from typing import Final

from fastapi import APIRouter
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from business_gateway import limits
from business_gateway.adapters.inbound.grpc_resource_provider import (
    ProviderAuthenticator,
    ResourceProviderServicer,
    resource_provider,
)
from business_gateway.adapters.inbound.loop_leftovers import leftovers_loop
from business_gateway.adapters.inbound.metrics import GatewayMetrics
from business_gateway.adapters.inbound.rest_app import RestParts, create_app
from business_gateway.adapters.inbound.rest_artifacts import artifact_router
from business_gateway.adapters.inbound.rest_assets import UPLOAD_PATH, asset_router
from business_gateway.adapters.inbound.rest_console import page_router, session_router
from business_gateway.adapters.inbound.rest_console_desk import desk_router, stream_router
from business_gateway.adapters.inbound.rest_journeys import journey_router
from business_gateway.adapters.inbound.rest_orders import order_router
from business_gateway.adapters.inbound.rest_security import client_of
from business_gateway.adapters.inbound.rest_server import RestServer, RestServerConfig
from business_gateway.adapters.outbound.object_store import ObjectStoreConfig, S3ObjectStore
from business_gateway.adapters.outbound.postgres.asset_store import PostgresAssetStore
from business_gateway.adapters.outbound.postgres.console_store import PostgresConsoleTables
from business_gateway.adapters.outbound.postgres.order_counter import PostgresOrderCounter
from business_gateway.adapters.outbound.postgres.order_store import PostgresOrderStore
from business_gateway.adapters.outbound.postgres.resource_store import PostgresResourceStore
from business_gateway.adapters.outbound.thumbnail_process import ThumbnailProcess
from business_gateway.core.assets.application import AssetLimits, Assets
from business_gateway.core.assets.sweeping import LeftUploads
from business_gateway.core.console.sessions import Sessions
from business_gateway.core.orders.application import Orders
from business_gateway.core.orders.change_hub import OrderChangeHub
from business_gateway.core.orders.journeys import Journeys
from business_gateway.core.resources.application import Artifacts, GrantLimits, Resources
from business_gateway.core.resources.sweeping import LeftPlaces
from business_gateway.core.resources.thumbnails import Thumbnails
from business_gateway.parts import SyncParts
from business_gateway.settings import GatewaySettings
from foundation.clock import Clock, SystemClock
from foundation.grpc.interceptors import HEALTH_METHODS, REFLECTION_METHODS, server_interceptors
from foundation.grpc.server import GrpcServer, ServerConfig, ServerTls
from foundation.ids import IdSource, SystemIds
from foundation.lifecycle import Service
from foundation.metrics.endpoint import MetricsEndpoint
from foundation.postgres.pool import Database, DatabaseConfig

BuildSync = Callable[[GatewaySettings, Database, IdSource, Clock, OrderChangeHub], SyncParts]

_APPLICATION_NAME: Final = "tdp-gateway"
_GRANT_LIMITS: Final = GrantLimits(
    valid_s_min=limits.GRANT_VALID_S_MIN,
    valid_s_max=limits.GRANT_VALID_S_MAX,
    download_valid_s=limits.DOWNLOAD_VALID_S,
    hashes_max=limits.HASHES_MAX,
)


class Gateway:
    """One replica, composed from its settings; `build_sync` makes the half towards the platform."""

    def __init__(self, settings: GatewaySettings, build_sync: BuildSync) -> None:
        self.settings = settings
        self.clock: Clock = SystemClock()
        self.ids: IdSource = SystemIds(self.clock)
        self.random = Random()  # noqa: S311 - spreads waits, guards no secret
        self.changes = OrderChangeHub()
        self.database = Database(_database_config(settings))
        self.objects = S3ObjectStore(_object_store_config(settings), self.clock)
        self.sync = build_sync(settings, self.database, self.ids, self.clock, self.changes)
        self._resource_store = PostgresResourceStore(self.database)
        self.rest_server = RestServer(self._app(), _rest_config(settings), self.changes.close)
        self.grpc_server = self._grpc_server()

    async def open(self) -> None:
        """Connect to the database and prepare the object store's client."""
        await self.database.open()
        await self.objects.open()

    async def close(self) -> None:
        """Close what `open` opened; idempotent."""
        await self.objects.close()
        await self.database.close()

    def services(self) -> tuple[Service, ...]:
        """Return the services in the order in which they start."""
        sweep = leftovers_loop(
            [
                LeftUploads(
                    PostgresAssetStore(self.database),
                    self.objects,
                    older_than_s=self.settings.uncommitted_ttl_s,
                    batch=limits.LEFTOVERS_BATCH,
                ),
                LeftPlaces(
                    self._resource_store,
                    self.objects,
                    older_than_s=self.settings.uncommitted_ttl_s,
                    batch=limits.LEFTOVERS_BATCH,
                ),
            ],
            period_s=limits.LEFTOVERS_SWEEP_S,
            random=self.random,
        )
        return (
            *self.sync.services,
            sweep,
            *self._metrics(),
            self.grpc_server,
            self.rest_server,
        )

    def _metrics(self) -> list[Service]:
        port = self.settings.metrics_port
        if port is None:
            return []
        metrics = GatewayMetrics(
            CollectorRegistry(), PostgresOrderCounter(self.database), self.clock
        )
        for name, (store, pump) in self.sync.outboxes.items():
            metrics.outboxes.add(name, store, pump)
        return [MetricsEndpoint(self.settings.metrics_host, port, metrics.render)]

    def _app(self) -> ASGIApp:
        paths = {UPLOAD_PATH: self.settings.asset_size_bytes_max, **self.sync.body_bytes_max}
        return create_app(
            RestParts(
                routers=[*self._routers(), *self.sync.routers],
                ids=self.ids,
                body_bytes_max=limits.JSON_BODY_BYTES_MAX,
                body_bytes_max_by_path=paths,
            )
        )

    def _routers(self) -> list[APIRouter]:
        key_hashes = self.settings.api_key_hashes
        sessions = Sessions(
            self.settings.provider_secret.get_secret_value().encode(), key_hashes, self.clock
        )
        client = client_of(key_hashes, sessions)
        order_store = PostgresOrderStore(self.database)
        orders = Orders(
            order_store,
            self.ids,
            self.sync.commands,
            self.changes,
            self.settings.workflows,
        )
        journeys = Journeys(
            order_store, self.sync.evidence, self.changes, recheck_s=limits.STREAM_RECHECK_S
        )
        artifacts = Artifacts(self._resource_store, self.objects, _GRANT_LIMITS)
        return [
            asset_router(self._assets(), client),
            order_router(orders, client),
            journey_router(orders, journeys, client),
            artifact_router(artifacts, Thumbnails(self.objects, ThumbnailProcess()), client),
            *self._console(sessions, orders),
        ]

    def _console(self, sessions: Sessions, orders: Orders) -> list[APIRouter]:
        tables, desk = PostgresConsoleTables(self.database), self.sync.desk
        return [
            session_router(sessions, self.settings.api_key_hashes, desk),
            stream_router(sessions, self.changes, tables, recheck_s=limits.STREAM_RECHECK_S),
            desk_router(sessions, desk, tables, orders),
            # Last: it takes every path below the page.
            page_router(),
        ]

    def _assets(self) -> Assets:
        bounds = AssetLimits(
            self.settings.asset_size_bytes_max,
            limits.UPLOAD_URL_VALID_S,
            limits.VERIFICATION_TTL_S,
        )
        return Assets(PostgresAssetStore(self.database), self.objects, self.ids, bounds)

    def _grpc_server(self) -> GrpcServer:
        settings = self.settings
        resources = Resources(
            self._resource_store, self.objects, self.ids, self.clock, _GRANT_LIMITS
        )
        provider = ResourceProviderServicer(resources, settings.application_id)
        interceptors = server_interceptors(
            ids=self.ids,
            clock=self.clock,
            authenticator=ProviderAuthenticator(settings.provider_secret.get_secret_value()),
            open_methods=(HEALTH_METHODS, REFLECTION_METHODS, *self.sync.open_methods),
        )
        return GrpcServer(
            _grpc_config(settings),
            [resource_provider(provider), *self.sync.grpc_services],
            interceptors,
        )


def _database_config(settings: GatewaySettings) -> DatabaseConfig:
    return DatabaseConfig(
        dsn=settings.database_dsn.get_secret_value(),
        application_name=_APPLICATION_NAME,
        pool_size_max=settings.database_pool_size_max,
    )


def _object_store_config(settings: GatewaySettings) -> ObjectStoreConfig:
    return ObjectStoreConfig(
        endpoint_url=settings.s3_endpoint_url,
        public_endpoint_url=settings.s3_public_endpoint_url or settings.s3_endpoint_url,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key.get_secret_value(),
        bucket=settings.s3_bucket,
        region=settings.s3_region,
    )


def _rest_config(settings: GatewaySettings) -> RestServerConfig:
    return RestServerConfig(
        host=settings.rest_host,
        port=settings.rest_port,
        tls_certificate_path=settings.rest_tls_certificate_path,
        tls_key_path=settings.rest_tls_key_path,
        stop_grace_s=limits.REST_STOP_GRACE_S,
        keep_alive_s=limits.KEEP_ALIVE_S,
        connections_max=limits.REST_CONNECTIONS_MAX,
    )


def _grpc_config(settings: GatewaySettings) -> ServerConfig:
    certificate, key = settings.grpc_tls_certificate_path, settings.grpc_tls_key_path
    tls = None if certificate is None or key is None else ServerTls(certificate, key)
    return ServerConfig(
        host=settings.grpc_host,
        port=settings.grpc_port,
        tls=tls,
        reflection=settings.grpc_reflection,
        stop_grace_s=limits.REST_STOP_GRACE_S,
    )
