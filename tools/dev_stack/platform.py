"""TDP itself on top of the embedded servers: control planes, gateways and agents as children."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from foundation.postgres.migrations import Migrations
from tools.dev_stack.platform_bootstrap import Wishes, bootstrap
from tools.dev_stack.platform_environment import Place, Surroundings
from tools.dev_stack.platform_probes import grpc_serves, http_serves, node_probe
from tools.dev_stack.platform_process import PlatformProcess, Probe, ProcessSpec
from tools.dev_stack.platform_profiles import DEV, Profile
from tools.dev_stack.platform_state import PlatformState, load_platform_state, save_platform_state
from tools.dev_stack.processes import uninterrupted
from tools.dev_stack.stack import Stack, StackConfig, running_stack

_ROOT: Final = Path(__file__).resolve().parents[2]
WORKFLOWS_FOLDER: Final = _ROOT / "business_gateway" / "workflows"

Report = Callable[[str], None]
"""Told what is being started, a short phrase for people."""


@dataclass(frozen=True, slots=True)
class PlatformConfig:
    """How many of each, where their data is, and with which figures.

    `variables` go over everything else, by the name of a process (`agent-1`) or kind (`agent`).
    """

    data_folder: Path
    profile: Profile = DEV
    control_planes: int = 1
    gateways: int = 1
    agents: int = 2
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    workflow_files: Sequence[Path] | None = None


class Platform:
    """Handles of all processes, and what their clients need to know."""

    def __init__(self, config: PlatformConfig, stack: Stack, state: PlatformState) -> None:
        """Describe the processes; nothing runs yet."""
        self._config = config
        self._state = state
        self.stack = stack
        self.surroundings = Surroundings(
            Place(config.data_folder, config.control_planes), config.profile, stack, state
        )
        self.control_planes = self._many("control-plane", config.control_planes, self._control)
        self.gateways = self._many("gateway", config.gateways, self._gateway)
        self.agents = self._many("agent", config.agents, self._agent)

    @property
    def processes(self) -> tuple[PlatformProcess, ...]:
        """All of TDP's own processes."""
        return (*self.control_planes, *self.gateways, *self.agents)

    @property
    def client_key(self) -> str:
        """The API key of people and programs: the gateway's REST, and tasks of their own."""
        return self._state.secrets.client_key

    @property
    def admin_key(self) -> str:
        """The operator's key of the control plane."""
        return self._state.secrets.admin_key

    @property
    def application_id(self) -> str:
        """The application as which the gateway submits."""
        return self._state.application_id

    def control_target(self, number: int = 1) -> str:
        """Where a control plane serves gRPC."""
        return self.surroundings.address(f"control-plane-{number}")

    def gateway_url(self, number: int = 1) -> str:
        """Where a gateway serves HTTP."""
        return f"http://{self.surroundings.address(f'gateway-{number}')}"

    def process(self, name: str) -> PlatformProcess:
        """The process of this name; KeyError if there is none."""
        return {process.name: process for process in self.processes}[name]

    async def start(self, report: Report) -> None:
        """Migrate, start everything and register what is not there yet.

        Raises:
            ServerStartError: a process did not come up; carries its log's end.
            TdpError: a control plane refused what had to be registered.
        """
        report("databases")
        await self._migrate()
        report("control plane")
        await _all_of(process.start() for process in self.control_planes)
        report("workflows and keys")
        await self._bootstrap()
        report("gateway and node agents")
        # After their application exists: gateways do not run without its id.
        await _all_of(process.start() for process in (*self.gateways, *self.agents))

    async def stop(self) -> None:
        """Stop all in the order in which work flows out; idempotent."""
        for group in (self.agents, self.gateways, self.control_planes):
            await asyncio.gather(*(process.stop() for process in group))

    async def wait_for_crash(self) -> str:
        """Wait until a process or server ends that nobody asked to; answer which and its log."""
        watched: list[PlatformProcess | Stack] = [*self.processes, self.stack]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one.wait_for_crash(), name="wait for a crash") for one in watched
            ]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
        return done.pop().result()

    async def _migrate(self) -> None:
        """Bring the databases up to date as `migrate` does, without starting a process for it."""
        owners = {
            self.surroundings.control_database: "control_plane" if self.control_planes else "",
            self.surroundings.gateway_database: "business_gateway" if self.gateways else "",
        }
        wanted = {database: module for database, module in owners.items() if module}
        for database in wanted:
            await self.stack.create_database(database)
        await _all_of(
            Migrations(
                _ROOT / module / "sql" / "migrations", self.stack.postgres_dsn(database)
            ).migrate()
            for database, module in wanted.items()
        )

    async def _bootstrap(self) -> None:
        wishes = Wishes(
            callback_url=f"{self.gateway_url()}/callbacks" if self.gateways else "",
            provider_url=self.surroundings.provider_url if self.gateways else "",
            workflow_files=self._workflow_files(),
            application_id=self._state.application_id,
        )
        application_id = await bootstrap(self.control_target(), self._state.secrets, wishes)
        if application_id != self._state.application_id:
            self._state = dataclasses.replace(self._state, application_id=application_id)
            save_platform_state(self._config.data_folder, self._state)
        self.surroundings.application_id = application_id

    def _workflow_files(self) -> Sequence[Path]:
        if self._config.workflow_files is not None:
            return self._config.workflow_files
        return sorted(WORKFLOWS_FOLDER.glob("*.yaml"))

    def _many(
        self, kind: str, count: int, specify: Callable[[str], ProcessSpec]
    ) -> tuple[PlatformProcess, ...]:
        return tuple(PlatformProcess(specify(f"{kind}-{number}")) for number in range(1, count + 1))

    def _control(self, name: str) -> ProcessSpec:
        async def begin() -> Probe:
            return lambda: grpc_serves(self.surroundings.address(name))

        return self._spec(name, "control_plane", begin, self.surroundings.control_plane)

    def _gateway(self, name: str) -> ProcessSpec:
        async def probe() -> None:
            await http_serves(f"http://{self.surroundings.address(name)}/healthz")
            await grpc_serves(self.surroundings.address(f"{name}-grpc"))

        async def begin() -> Probe:
            return probe

        return self._spec(name, "business_gateway", begin, self.surroundings.gateway)

    def _agent(self, name: str) -> ProcessSpec:
        async def begin() -> Probe:
            target = await self._answering_control_plane()
            return await node_probe(target, self.admin_key, name)

        return self._spec(name, "node_agent", begin, self.surroundings.agent)

    async def _answering_control_plane(self) -> str:
        running = [one for one in self.control_planes if one.is_running]
        chosen = (running or self.control_planes)[0]
        return self.surroundings.address(chosen.name)

    def _spec(
        self,
        name: str,
        module: str,
        begin: Callable[[], Awaitable[Probe]],
        environment: Callable[[str], Mapping[str, str]],
    ) -> ProcessSpec:
        kind = name.rpartition("-")[0]
        own = {**self._config.variables.get(kind, {}), **self._config.variables.get(name, {})}
        return ProcessSpec(
            name=name,
            module=module,
            log_file=self._config.data_folder / "logs" / f"{name}.log",
            environment=lambda: {**environment(name), **own},
            begin=begin,
        )


@asynccontextmanager
async def running_platform(
    config: PlatformConfig, report: Report = lambda _phrase: None
) -> AsyncIterator[Platform]:
    """Run servers and processes of a folder until the block ends, then stop them in order.

    A second run on the same folder finds its data, secrets and, where they are free, its ports.

    Raises:
        FolderInUseError: another process runs the stack of this folder.
        ServerStartError: something did not come up; carries the end of its log.
        DevStackError: the other reasons of errors.py.
    """
    folder = config.data_folder.resolve()
    config = dataclasses.replace(config, data_folder=folder)
    report("PostgreSQL, NATS and S3")
    async with running_stack(_stack_config(config)) as stack:
        state = load_platform_state(folder).with_ports(_port_names(config))
        save_platform_state(folder, state)
        platform = Platform(config, stack, state)
        try:
            await platform.start(report)
            yield platform
        finally:
            await uninterrupted(platform.stop())


def _stack_config(config: PlatformConfig) -> StackConfig:
    return StackConfig(
        config.data_folder,
        bucket="tdp-gateway",
        durable=config.profile.durable,
    )


def _port_names(config: PlatformConfig) -> list[str]:
    names = [f"control-plane-{number}" for number in range(1, config.control_planes + 1)]
    for number in range(1, config.gateways + 1):
        names += [f"gateway-{number}", f"gateway-{number}-grpc"]
    return names


async def _all_of(starts: Iterable[Awaitable[None]]) -> None:
    """Await all, also if one fails, so that none is left half started; raise the first error."""
    for outcome in await asyncio.gather(*starts, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
