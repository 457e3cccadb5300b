"""Composition root of the control plane: only this package names concrete adapters."""

from random import Random
from typing import Final

from control_plane.adapters.inbound.grpc_application import ApplicationServicer
from control_plane.adapters.inbound.grpc_grants import GrantCalls
from control_plane.adapters.inbound.grpc_node import OPEN_METHODS as OPEN_NODE_METHODS
from control_plane.adapters.inbound.grpc_node import NodeServicer
from control_plane.adapters.inbound.grpc_node_admin import NodeAdminServicer
from control_plane.adapters.inbound.grpc_schedule import ScheduleServicer
from control_plane.adapters.inbound.grpc_system import SystemServicer
from control_plane.adapters.inbound.grpc_task import TaskServicer, TaskUseCases
from control_plane.adapters.inbound.grpc_workflow import WorkflowServicer
from control_plane.adapters.inbound.loop_commands import CommandSender
from control_plane.adapters.inbound.loop_engine import engine_loop
from control_plane.adapters.inbound.loop_engine_sweep import engine_sweep_loop
from control_plane.adapters.inbound.loop_lease_expiry import LeaseExpiry
from control_plane.adapters.inbound.loop_lease_stops import RunTimeouts
from control_plane.adapters.inbound.loop_lease_tick import LeaseTick
from control_plane.adapters.inbound.loop_progress import ProgressWrites
from control_plane.adapters.inbound.loop_scheduler import scheduler_loop
from control_plane.adapters.inbound.loop_schedules import schedules_loop
from control_plane.adapters.inbound.nats_engine_consumer import EngineConsumer
from control_plane.adapters.outbound.address_guard import AddressGuard
from control_plane.adapters.outbound.callback_grpc import GrpcCallbacks
from control_plane.adapters.outbound.callback_http import HttpCallbacks
from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.adapters.outbound.nats_connection import NatsConnection
from control_plane.adapters.outbound.nats_publisher import JetStreamPublisher
from control_plane.adapters.outbound.nats_wakeups import NatsWakeups
from control_plane.adapters.outbound.postgres.callback_store import LOGGED_STATUSES, note_failures
from control_plane.adapters.outbound.postgres.intake_store import QueuedIntake
from control_plane.adapters.outbound.resource_provider import GrpcResourceProviders
from control_plane.bootstrap.operations import Operations
from control_plane.bootstrap.stores import stores_of
from control_plane.core.applications.application import Applications
from control_plane.core.applications.authentication import KeyAuthenticator
from control_plane.core.applications.endpoints import EndpointPolicy
from control_plane.core.callbacks.application import CallbackPublisher
from control_plane.core.callbacks.isolation import EndpointLoads
from control_plane.core.callbacks.redelivery import Callbacks
from control_plane.core.engine.application import EngineDriver
from control_plane.core.evidence.application import Evidence
from control_plane.core.executions.admission import Admission
from control_plane.core.executions.bulk import BulkTasks
from control_plane.core.executions.control import TaskControl
from control_plane.core.executions.intake import TaskIntake
from control_plane.core.executions.operations import ExecutionOperations
from control_plane.core.executions.queries import ExecutionQueries
from control_plane.core.executions.watching import WatchHub
from control_plane.core.grants.application import Grants
from control_plane.core.grants.committing import CommitPublisher
from control_plane.core.nodes.administration import NodeAdministration
from control_plane.core.nodes.application import NodeSessions
from control_plane.core.nodes.enrolment import Enrolment
from control_plane.core.nodes.session import LiveSessions
from control_plane.core.schedules.application import ScheduleParts, Schedules
from control_plane.core.schedules.running import ScheduleRunner
from control_plane.core.schedules.starting import IntakeTaskStarter
from control_plane.core.scheduling.application import Scheduler
from control_plane.core.scheduling.explaining import Explanations
from control_plane.core.scheduling.foresight import Foresight
from control_plane.core.wakeups import LocalHints
from control_plane.core.workflows.application import Workflows
from control_plane.core.workflows.compiling import CompiledWorkflows
from control_plane.limits import FAILING_IN_FLIGHT_MAX, SILENT_IN_FLIGHT_MAX
from control_plane.policies import callback_policy, commit_policy, event_policy
from control_plane.settings import ControlPlaneSettings
from control_plane.version import VERSION
from foundation.clock import Clock, SystemClock
from foundation.grpc.interceptors import HEALTH_METHODS, REFLECTION_METHODS, server_interceptors
from foundation.grpc.server import GrpcServer, GrpcService
from foundation.ids import IdSource, SystemIds
from foundation.lifecycle import RunningService, Service
from foundation.outbox.postgres_store import PostgresOutboxStore
from foundation.outbox.pump import OutboxPump
from foundation.postgres.pool import Database, DatabaseConfig
from tdp.control.v1 import (
    application_service_pb2_grpc,
    node_admin_service_pb2_grpc,
    schedule_service_pb2_grpc,
    system_service_pb2_grpc,
    task_service_pb2_grpc,
    workflow_service_pb2_grpc,
)
from tdp.node.v1 import node_service_pb2_grpc

_HEARTBEAT_POOL_SIZE: Final = 2
"""Connections that only heartbeats use, so that no load makes leases expire."""


class ControlPlane:
    """One replica, composed from its settings; a test replaces what it wants before `services`."""

    def __init__(self, settings: ControlPlaneSettings) -> None:
        self.settings = settings
        self.clock: Clock = SystemClock()
        self.ids: IdSource = SystemIds(self.clock)
        self.random = Random()  # noqa: S311 - spreads waits, guards no secret
        self.replica_id = self.ids.new_id()
        self.hints = LocalHints()
        self.keys = settings.key_ring
        self.compiled = CompiledWorkflows(CelCompiler())
        self.database = Database(
            self._database_config("tdp-control", settings.database_pool_size_max)
        )
        self.heartbeats = Database(self._database_config("tdp-heartbeat", _HEARTBEAT_POOL_SIZE))
        self.stores = stores_of(self)
        self.callback_policy = callback_policy(
            settings.claim_ttl_s, settings.backoff_cap_s, self.random
        )
        self.deliveries = PostgresOutboxStore(
            self.database,
            self.callback_policy,
            table="callback_deliveries",
            after_mark=note_failures,
            after_statuses=LOGGED_STATUSES,
        )
        self.guard = AddressGuard(private_allowed=settings.private_endpoints_allowed)
        self.providers = GrpcResourceProviders(self.database, self.keys, self.guard)
        self.queued_intake = QueuedIntake(self.stores.intake)
        self.watch_hub = WatchHub(self.hints.watchers)
        self.live = LiveSessions(self.hints)
        self.operations = Operations(settings, self.database, self.live, self.clock, self.random)
        self.driver = EngineDriver(
            self.stores.engine, self.ids, self.hints, self.clock, self.operations.measures
        )
        self.sessions = NodeSessions(
            self.stores.nodes,
            self.stores.commands,
            self.stores.inbox,
            self.driver.advanced_elsewhere,
            self.live,
            self.hints,
            self.clock,
            settings.figures,
            measures=self.operations.measures,
        )
        self.nats = NatsConnection(settings.nats_url, f"tdp-control-{self.replica_id}")
        self.wakeups = NatsWakeups(
            self.nats, self.hints, self.live.wake, replica_id=self.replica_id
        )
        self.consumer = EngineConsumer(
            self.nats,
            self.driver,
            self.hints,
            self.clock,
            stream_bytes_max=settings.nats_stream_bytes_max,
        )
        policy = EndpointPolicy(
            insecure_allowed=settings.insecure_endpoints_allowed,
            private_allowed=settings.private_endpoints_allowed,
        )
        self.queries = ExecutionQueries(self.stores.reader)
        self.control = TaskControl(self.stores.control, self.queries, self.hints)
        self.intake = self._intake(policy)
        self.task_starter = IntakeTaskStarter(self.intake, self.control)
        self.server = self._server(policy)

    async def open(self) -> None:
        """Connect to the database and have the first operator's key there."""
        await self.database.open()
        await self.heartbeats.open()
        digest = self.settings.bootstrap_admin_key_sha256
        if digest:
            await self.stores.applications.ensure_operator(
                self.ids.new_id(), self.settings.bootstrap_admin_name, bytes.fromhex(digest)
            )

    async def close(self) -> None:
        """Close what `open` opened; idempotent."""
        await self.providers.close()
        await self.heartbeats.close()
        await self.database.close()

    def services(self) -> list[Service]:
        """Return every part with a life of its own, in the order in which they start."""
        return [
            *self._queues(),
            *self._lease_loops(),
            *self._drivers(),
            *self._pumps(),
            *self.operations.services(),
            self.server,
        ]

    # --- Parts. ---

    def _database_config(self, name: str, size_max: int) -> DatabaseConfig:
        return DatabaseConfig(
            dsn=self.settings.database_dsn.get_secret_value(),
            application_name=name,
            pool_size_max=size_max,
        )

    def _queues(self) -> list[Service]:
        intake = self.queued_intake
        return [
            RunningService("intake-look-ups", intake.look_ups),
            RunningService("intake-creations", intake.creations),
            self.watch_hub,
        ]

    def _lease_loops(self) -> list[Service]:
        """The tick comes first, so that it outlives the sessions when all is stopped."""
        figures, stores, sweep_s = (
            self.settings.figures,
            self.stores,
            self.settings.sweep_interval_s,
        )
        return [
            LeaseTick(self.sessions, stores.leases, stores.nodes, self.hints, self.clock).loop(
                self.random
            ),
            self.sessions,
            LeaseExpiry(stores.leases, self.hints, figures).loop(self.random, sweep_s),
            RunTimeouts(stores.leases, self.hints, figures).loop(self.random, sweep_s),
            ProgressWrites(self.sessions.progress, stores.leases, self.hints, self.clock).loop(
                self.random
            ),
        ]

    def _drivers(self) -> list[Service]:
        scheduler = Scheduler(
            self.stores.scheduling,
            self.ids,
            self.hints,
            self.clock,
            heartbeat_ttl_s=self.settings.scheduling_ttl_s,
            measures=self.operations.measures,
        )
        sender = CommandSender(
            self.live,
            self.stores.commands,
            self.wakeups,
            self.hints,
            self.clock,
            self.settings.sweep_interval_s,
        )
        runner = ScheduleRunner(
            self.stores.due_runs,
            self.task_starter,
            self.random,
            retry_cap_s=self.settings.backoff_cap_s,
        )
        return [
            self.nats,
            self.wakeups,
            engine_loop(self.driver, self.hints, self.random),
            engine_sweep_loop(self.driver, self.random, interval_s=self.settings.sweep_interval_s),
            self.consumer,
            scheduler_loop(scheduler, self.hints, self.random),
            schedules_loop(
                runner, self.hints, self.random, interval_s=self.settings.sweep_interval_s
            ),
            sender.loop(self.random),
        ]

    def _pumps(self) -> list[Service]:
        claim_s, cap_s = self.settings.claim_ttl_s, self.settings.backoff_cap_s
        http = HttpCallbacks(self.guard, self.clock)
        over_grpc = GrpcCallbacks(self.guard, self.clock)
        events = PostgresOutboxStore(
            self.database, event_policy(claim_s, cap_s), table="outbox_events"
        )
        commits = PostgresOutboxStore(
            self.database, commit_policy(claim_s, cap_s), table="artifact_commits"
        )
        callback_pump = OutboxPump(
            self.deliveries,
            CallbackPublisher(
                self.stores.callbacks,
                http,
                over_grpc,
                self.deliveries,
                EndpointLoads(
                    self.clock, silent_max=SILENT_IN_FLIGHT_MAX, failing_max=FAILING_IN_FLIGHT_MAX
                ),
            ),
            self.callback_policy,
            self.clock,
            self.hints.callbacks,
        )
        event_pump = OutboxPump(
            events,
            JetStreamPublisher(self.nats, self.consumer.recheck),
            event_policy(claim_s, cap_s),
            self.clock,
            self.hints.outbox,
        )
        commit_pump = OutboxPump(
            commits,
            CommitPublisher(self.stores.grants, self.providers, self.stores.inbox, self.hints),
            commit_policy(claim_s, cap_s),
            self.clock,
            self.hints.artifact_commits,
        )
        measured = self.operations.metrics.outboxes
        measured.add("outbox_events", events, event_pump)
        measured.add("callback_deliveries", self.deliveries, callback_pump)
        measured.add("artifact_commits", commits, commit_pump)
        return [
            RunningService("outbox-events", event_pump),
            RunningService("artifact-commits", commit_pump),
            RunningService("callbacks", callback_pump, opening=http.open, closing=http.close),
        ]

    def _server(self, policy: EndpointPolicy) -> GrpcServer:
        settings = self.settings
        authenticator = KeyAuthenticator(self.stores.applications, self.clock)
        return GrpcServer(
            settings.grpc_server_config(),
            self._grpc_services(policy),
            server_interceptors(
                ids=self.ids,
                clock=self.clock,
                authenticator=authenticator,
                open_methods=(HEALTH_METHODS, REFLECTION_METHODS, *OPEN_NODE_METHODS),
            ),
            before_stop=(self.sessions.go_away, self.watch_hub.stop),
        )

    def _grpc_services(self, policy: EndpointPolicy) -> list[GrpcService]:
        workflows = Workflows(self.stores.workflows, CelCompiler(), self.clock)
        task = TaskServicer(
            TaskUseCases(
                intake=self.intake,
                queries=self.queries,
                control=self.control,
                bulk=BulkTasks(self.stores.bulk, self.hints),
                operations=ExecutionOperations(self.stores.operations, self.queries, self.hints),
                callbacks=Callbacks(self.stores.deliveries, self.queries, self.hints),
                hub=self.watch_hub,
                explanations=Explanations(
                    self.stores.standing, self.stores.scheduling, self.settings.scheduling_ttl_s
                ),
            )
        )
        node = NodeServicer(
            Enrolment(self.stores.nodes),
            self.sessions,
            GrantCalls(
                Grants(
                    self.stores.grants,
                    self.providers,
                    self.ids,
                    insecure_allowed=self.settings.insecure_endpoints_allowed,
                )
            ),
            server_version=VERSION,
        )
        system = SystemServicer(
            Evidence(self.stores.evidence),
            self.operations.conservation,
            VERSION,
            self.replica_id,
            ["retention"] if self.settings.retention_s is not None else [],
        )
        applications = Applications(
            self.stores.applications, self.deliveries, self.keys, self.ids, policy
        )
        administration = NodeAdministration(
            self.stores.directory, self.stores.management, self.hints
        )
        add_schedule = schedule_service_pb2_grpc.add_ScheduleServiceServicer_to_server
        add_application = application_service_pb2_grpc.add_ApplicationServiceServicer_to_server
        add_node_admin = node_admin_service_pb2_grpc.add_NodeAdminServiceServicer_to_server
        add_workflow = workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server
        add_system = system_service_pb2_grpc.add_SystemServiceServicer_to_server
        add_task = task_service_pb2_grpc.add_TaskServiceServicer_to_server
        add_node = node_service_pb2_grpc.add_NodeServiceServicer_to_server
        return [
            GrpcService("tdp.control.v1.TaskService", lambda server: add_task(task, server)),
            GrpcService(
                "tdp.control.v1.WorkflowService",
                lambda server: add_workflow(WorkflowServicer(workflows), server),
            ),
            GrpcService(
                "tdp.control.v1.ApplicationService",
                lambda server: add_application(ApplicationServicer(applications), server),
            ),
            GrpcService(
                "tdp.control.v1.NodeAdminService",
                lambda server: add_node_admin(NodeAdminServicer(administration), server),
            ),
            GrpcService(
                "tdp.control.v1.ScheduleService",
                lambda server: add_schedule(self._schedules(), server),
            ),
            GrpcService("tdp.control.v1.SystemService", lambda server: add_system(system, server)),
            GrpcService("tdp.node.v1.NodeService", lambda server: add_node(node, server)),
        ]

    def _schedules(self) -> ScheduleServicer:
        parts = ScheduleParts(
            store=self.stores.schedules,
            runs=self.stores.schedules,
            starter=self.task_starter,
            ids=self.ids,
            due=self.hints.schedules,
        )
        return ScheduleServicer(Schedules(parts))

    def _intake(self, policy: EndpointPolicy) -> TaskIntake:
        admission = Admission(self.stores.intake, self.clock, self.settings.queued_executions_max)
        return TaskIntake(
            self.queued_intake,
            self.compiled,
            Foresight(self.stores.scheduling, self.clock),
            admission,
            self.ids,
            self.clock,
            self.hints,
            policy,
        )
