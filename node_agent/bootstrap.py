"""Composition root of the agent: the only file that names concrete adapters."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import Final, Self

from prometheus_client import CollectorRegistry

from foundation.clock import Clock, SystemClock
from foundation.grpc.channel import ClientTls
from foundation.ids import SystemIds
from foundation.lifecycle import RunningService, Service, SystemdNotifier, SystemdWatchdog
from foundation.metrics.endpoint import MetricsEndpoint
from foundation.outbox.pump import OutboxPump
from foundation.outbox.sqlite_store import SqliteOutboxStore
from foundation.secrets import TokenKind, new_token
from foundation.sqlite.database import LocalDatabase
from foundation.wakeup import Wakeup
from node_agent.adapters.inbound.metrics import AgentMetrics, AgentReadings
from node_agent.adapters.outbound.grpc_grants import GrpcGrants
from node_agent.adapters.outbound.grpc_session import (
    ControlPlaneAddress,
    GrpcEnrolment,
    GrpcSessionTransport,
)
from node_agent.adapters.outbound.machine import LocalMachine
from node_agent.adapters.outbound.process_host.config import ProcessHostConfig
from node_agent.adapters.outbound.process_host.host import ProcessHost
from node_agent.adapters.outbound.sqlite.journal import SqliteJournal
from node_agent.adapters.outbound.sqlite.opening import open_journal
from node_agent.adapters.outbound.state_folder import StateFolder
from node_agent.core.execution.application import AttemptRunner, RunnerConfig, RunnerParts
from node_agent.core.execution.drain import DrainControl, FinalDrain
from node_agent.core.execution.grants import GrantTools
from node_agent.core.execution.host_service import HostService
from node_agent.core.execution.intake import StoringIntake
from node_agent.core.execution.ports import CapabilityHost
from node_agent.core.execution.readiness import AgentReadiness
from node_agent.core.execution.reporting import Reporter
from node_agent.core.journal.application import JournalWriter
from node_agent.core.journal.domain import Identify, JournalContents
from node_agent.core.session.application import SessionClient, SessionConfig, SessionParts
from node_agent.core.session.enrolment import Enrolment, EnrolmentOrder, SavedCredential
from node_agent.core.session.event_sender import EventSender, EventSenderConfig
from node_agent.core.session.lease_clock import AttemptId, LeaseClock
from node_agent.core.session.mailbox import Mailbox
from node_agent.core.session.messages import Introduction
from node_agent.errors import StateFolderUnusableError
from node_agent.limits import (
    EVENT_ACK_TIMEOUT_S,
    EVENT_SESSION_PATIENCE_S,
    LEAVE_PATIENCE_S,
    PROGRESS_INTERVAL_S,
    node_events_policy,
)
from node_agent.sdk.discovery import (
    CapabilityKey,
    LoadedCapability,
    installed_references,
    load_capabilities,
)
from node_agent.settings import AgentSettings


def _version() -> str:
    try:
        return version("tdp")
    except PackageNotFoundError:
        # Run from a source tree that is not installed.
        return "0"


VERSION: Final = _version()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an agent takes from outside; tests hand in their own."""

    clock: Clock
    random: Random
    environ: Mapping[str, str]

    @classmethod
    def of_this_process(cls) -> Self:
        """Return the real ones."""
        return cls(SystemClock(), Random(), os.environ)  # noqa: S311 - jitter, not secrets


def control_plane_address(settings: AgentSettings) -> ControlPlaneAddress:
    """Return where to connect, and with what certificates."""
    tls = None
    if settings.tls:
        tls = ClientTls(
            settings.tls_ca_path, settings.tls_certificate_path, settings.tls_private_key_path
        )
    return ControlPlaneAddress(settings.targets, tls, settings.tls_server_name)


async def enrol(
    settings: AgentSettings, folder: StateFolder, surroundings: Surroundings
) -> SavedCredential:
    """Return the identity of the state folder's agent, got with the join token if need be."""
    enrolment = Enrolment(
        folder,
        GrpcEnrolment(control_plane_address(settings)),
        SystemIds(surroundings.clock).new_id,
        lambda: new_token(TokenKind.NODE),
        surroundings.random,
        asyncio.sleep,
    )
    token = settings.join_token
    order = EnrolmentOrder(
        settings.node_name, None if token is None else token.get_secret_value() or None
    )
    return await enrolment.ensure(order)


def loaded_capabilities(settings: AgentSettings) -> Mapping[CapabilityKey, LoadedCapability]:
    """Import the capabilities; CapabilityDefinitionError names a broken one."""
    references = settings.capabilities
    return load_capabilities(installed_references() if references is None else references)


class Agent:
    """All parts of one agent; `open` first, `close` last."""

    def __init__(
        self,
        settings: AgentSettings,
        folder: StateFolder,
        credential: SavedCredential,
        surroundings: Surroundings,
        host: CapabilityHost | None = None,
    ) -> None:
        """`folder` is open; `host` replaces the real one in tests."""
        self.settings = settings
        self.folder = folder
        self.credential = credential
        self.clock = surroundings.clock
        self.random = surroundings.random
        self.ids = SystemIds(self.clock)
        self.boot_id = self.ids.new_id()
        self.notifier = SystemdNotifier(surroundings.environ)
        self.machine = LocalMachine(folder, settings.gpu_count)
        self.lease_clock = LeaseClock()
        self.mailbox = Mailbox(self.clock.monotonic, PROGRESS_INTERVAL_S)
        self.capabilities = loaded_capabilities(settings) if host is None else {}
        self.host: CapabilityHost = host or self._process_host()
        address = control_plane_address(settings)
        self.transport = GrpcSessionTransport(address, credential.credential)
        self.grants = GrpcGrants(address, credential.credential, self.boot_id)
        self._database: LocalDatabase | None = None

    async def open(self) -> None:
        """Open the journal and put the parts together.

        Raises LocalDatabaseError kinds, and StateFolderUnusableError for another node's journal.
        """
        database = await open_journal(self.folder.path, self.clock, self.ids.new_id)
        self._database = database
        store = SqliteJournal(database)
        contents = await store.load()
        self._check_owner(contents)
        await store.apply([Identify(self.credential.node_id, self.credential.sha256.hex())])
        policy = node_events_policy(self.settings.reconnect_cap_s)
        outbox = SqliteOutboxStore(database, policy, self.clock, table="node_events")
        await outbox.recover()
        self._assemble(store, contents)
        self.pump = OutboxPump(outbox, self.events, policy, self.clock, self.pump_wakeup)
        self.metrics.outboxes.add("node_events", outbox, self.pump)

    async def close(self) -> None:
        """Close what `open` opened. Idempotent."""
        await self.grants.close()
        database, self._database = self._database, None
        if database is not None:
            await database.close()

    def services(self) -> list[Service]:
        """Return every part with a life of its own, in the order in which they start."""
        return [
            self.journal,
            SystemdWatchdog(self.notifier, self.journal.probe),
            HostService(self.host),
            self.runner,
            self.intake,
            self.session,
            RunningService("event-pump", self.pump),
            *self._metrics_endpoint(),
            self.final_drain,
        ]

    @property
    def slot_count(self) -> int:
        """Attempts that are held at once, of all kinds."""
        inline = any(one.inline for one in self.host.declarations())
        return self.process_slot_count + (self.settings.inline_slots if inline else 0)

    @property
    def process_slot_count(self) -> int:
        """Attempts that are held at once in child processes; 0 without such a capability."""
        in_process = any(not one.inline for one in self.host.declarations())
        return self.settings.slots if in_process else 0

    # --- Parts. ---

    def _assemble(self, store: SqliteJournal, contents: JournalContents) -> None:
        self.journal = JournalWriter(store)
        self.pump_wakeup = Wakeup()
        self.events = EventSender(
            EventSenderConfig(
                contents.identity.incarnation_id, EVENT_SESSION_PATIENCE_S, EVENT_ACK_TIMEOUT_S
            ),
            self.mailbox,
            self._final_event_acked,
            contents.event_count,
        )
        reporter = Reporter(
            self.journal,
            self.events,
            self.pump_wakeup,
            self.clock,
            self.ids.new_id,
            self.boot_id,
        )
        self.runner = self._runner(reporter, contents)
        readiness = AgentReadiness(
            contents.drain,
            self.journal,
            self.machine.free_disk_bytes,
            self.settings.disk_bytes_min,
        )
        self.metrics = self._metrics(readiness)
        self.drain = DrainControl(readiness, self.runner, self.mailbox)
        if contents.drain is not None:
            self.drain.begin(contents.drain)
        self.intake = StoringIntake(
            self.runner,
            self.drain,
            self.journal,
            reporter,
            self.mailbox,
            contents.last_command_sequence,
        )
        self.session = self._session(contents, readiness)
        self.final_drain = FinalDrain(
            self.drain,
            self.runner,
            self.mailbox,
            self.events.wait_empty,
            self.events.stop,
            grace_s=self.settings.drain_grace_s,
            flush_s=self.settings.flush_s,
        )

    def _metrics(self, readiness: AgentReadiness) -> AgentMetrics:
        readings = AgentReadings(
            slot_count=lambda: self.slot_count,
            unfinished_count=lambda: self.runner.unfinished_count,
            held_count=lambda: len(self.runner.held()),
            is_in_session=lambda: self.events.is_in_session,
            is_ready=lambda: readiness.readiness().is_ready,
            free_disk_bytes=self.machine.free_disk_bytes,
        )
        return AgentMetrics(CollectorRegistry(), readings, self.clock)

    def _metrics_endpoint(self) -> list[Service]:
        port = self.settings.metrics_port
        if port is None:
            return []
        return [MetricsEndpoint(self.settings.metrics_host, port, self.metrics.render)]

    def _final_event_acked(self, attempt_id: AttemptId) -> None:
        self.runner.final_event_acked(attempt_id)

    def _runner(self, reporter: Reporter, contents: JournalContents) -> AttemptRunner:
        return AttemptRunner(
            RunnerConfig(process_slot_count=self.settings.slots, slot_count=self.slot_count),
            RunnerParts(
                host=self.host,
                journal=self.journal,
                reporter=reporter,
                mailbox=self.mailbox,
                clock=self.lease_clock,
                boot_clock_s=self.machine.boot_clock_s,
                folders=self.folder,
                grants=GrantTools(self.grants, self.clock, self.random, self.ids.new_id),
                supports_resume=self._supports_resume,
            ),
            contents,
        )

    def _session(self, contents: JournalContents, readiness: AgentReadiness) -> SessionClient:
        introduction = Introduction(
            node_id=self.credential.node_id,
            boot_id=self.boot_id,
            incarnation_id=contents.identity.incarnation_id,
            agent_version=VERSION,
            capabilities=self.host.declarations(),
            slot_count=self.slot_count,
            process_slot_count=self.process_slot_count,
        )
        parts = SessionParts(
            transport=self.transport,
            attempts=self.runner,
            intake=self.intake,
            events=self.events,
            mailbox=self.mailbox,
            clock=self.lease_clock,
            machine=self.machine,
            readiness=readiness,
        )
        config = SessionConfig(self.settings.backoff, LEAVE_PATIENCE_S)
        return SessionClient(config, introduction, parts, self.random)

    def _process_host(self) -> ProcessHost:
        config = ProcessHostConfig(
            slot_count=self.settings.slots,
            stop_grace_s=self.settings.stop_grace_s,
            memory_bytes_max=self.settings.memory_bytes_max,
        )
        return ProcessHost(self.capabilities, config, self.clock)

    def _supports_resume(self, name: str, capability_version: str) -> bool:
        loaded = self.capabilities.get((name, capability_version))
        return loaded is not None and loaded.capability.supports_resume

    def _check_owner(self, contents: JournalContents) -> None:
        owner = contents.identity.node_id
        if owner and owner != self.credential.node_id:
            raise StateFolderUnusableError(
                f"the journal in {self.folder.path} is of node {owner}, the credential of node "
                f"{self.credential.node_id}: put the right files together, or delete journal.db"
            )
