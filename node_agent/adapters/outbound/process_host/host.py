"""The host: a warm child for each slot, taken for an attempt and replaced once it has ended."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from foundation.clock import Clock, SystemClock
from node_agent.adapters.outbound.process_host.child_handle import ChildHandle, ChildStartError
from node_agent.adapters.outbound.process_host.config import ProcessHostConfig
from node_agent.adapters.outbound.process_host.inline import run_inline
from node_agent.adapters.outbound.process_host.supervision import AttemptSupervision
from node_agent.adapters.outbound.transfers import HttpTransfers
from node_agent.core.execution.ports import (
    AttemptServices,
    CapabilityDeclaration,
    CapabilityHost,
    Failed,
    Outcome,
    RunOrder,
    Stopped,
    Usage,
    WorkFailure,
)
from node_agent.sdk.definition import Capability
from node_agent.sdk.discovery import CapabilityKey, LoadedCapability

_log = structlog.stdlib.get_logger(__name__)


class _Slot:
    """Room for one attempt, with a child that is kept warm."""

    def __init__(self) -> None:
        self._child: ChildHandle | None = None

    async def warm(self, config: ProcessHostConfig, references: Sequence[str]) -> ChildHandle:
        """The child, started anew if there is none that lives."""
        if self._child is not None and not self._child.is_alive:
            await self.empty()
        if self._child is None:
            self._child = await ChildHandle.start(config, references)
        return self._child

    async def tidy(self, config: ProcessHostConfig) -> None:
        """End a child that has run enough, or keeps too much memory."""
        child = self._child
        if child is None or not child.is_alive:
            return
        _, memory_bytes = child.measured()
        worn = child.attempt_count >= config.attempts_per_child_max
        if worn or memory_bytes > config.idle_memory_bytes_max:
            await self.empty()

    async def empty(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            await child.ended()


class ProcessHost(CapabilityHost):
    """Runs capabilities: inline ones in this loop, the others in children, one a slot."""

    def __init__(
        self,
        capabilities: Mapping[CapabilityKey, LoadedCapability],
        config: ProcessHostConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Take what `load_capabilities` gave; no process is started yet."""
        self._capabilities = dict(capabilities)
        self._config = config or ProcessHostConfig()
        self._clock = clock or SystemClock()
        self._transfers = HttpTransfers(self._config.transfers, self._clock)
        self._slots = [_Slot() for _ in range(self._config.slot_count)]
        self._idle = list(self._slots)
        self._waiters: list[asyncio.Future[_Slot]] = []
        self._closing = asyncio.Event()
        self._running_count = 0
        self._all_ended = asyncio.Event()
        self._all_ended.set()

    def declarations(self) -> Sequence[CapabilityDeclaration]:
        """Everything that this host can run, by name and version."""
        return [
            self._capabilities[key].capability.declaration for key in sorted(self._capabilities)
        ]

    async def start(self) -> None:
        """Start all children, so that a broken installation shows at once.

        Raises:
            ChildStartError: a child did not come up.
        """
        references = self._process_references()
        if not references:
            return
        try:
            async with asyncio.TaskGroup() as group:
                for slot in self._slots:
                    group.create_task(slot.warm(self._config, references), name="child's start")
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None

    async def run(self, order: RunOrder, services: AttemptServices, stop: asyncio.Event) -> Outcome:
        """Run one attempt to its end; never raises for failures of the work."""
        loaded = self._capabilities.get((order.capability, order.capability_version))
        if loaded is None:
            return Failed(_unknown(order), Usage())
        self._running_count += 1
        self._all_ended.clear()
        try:
            return await self._run(loaded.capability, order, services, (stop, self._closing))
        finally:
            self._running_count -= 1
            if not self._running_count:
                self._all_ended.set()

    async def stop(self) -> None:
        """Stop running attempts, end all children; idempotent, legal before start."""
        self._closing.set()
        await self._all_ended.wait()
        for slot in self._slots:
            await slot.empty()
        await self._transfers.close()

    async def _run(
        self,
        capability: Capability,
        order: RunOrder,
        services: AttemptServices,
        stops: tuple[asyncio.Event, asyncio.Event],
    ) -> Outcome:
        if capability.mode == "inline":
            return await run_inline(
                capability, order, (services, self._transfers, self._clock), stops
            )
        slot = await self._acquire(stops)
        if slot is None:
            return Stopped(Usage())
        try:
            return await self._run_in(slot, order, services, stops)
        finally:
            self._release(slot)

    async def _run_in(
        self,
        slot: _Slot,
        order: RunOrder,
        services: AttemptServices,
        stops: Sequence[asyncio.Event],
    ) -> Outcome:
        try:
            child = await slot.warm(self._config, self._process_references())
        except ChildStartError as error:
            _log.error("child_start_failed", problem=error.message)
            failure = WorkFailure(error.reason, error.message, retryable=True, infrastructure=True)
            return Failed(failure, Usage())
        supervision = AttemptSupervision(child, order, services, self._config, self._clock)
        try:
            outcome = await supervision.run(stops)
        except BaseException:
            # Cancelled, or the agent itself is failing: the work must not go on unwatched.
            child.kill()
            raise
        await slot.tidy(self._config)
        return outcome

    async def _acquire(self, stops: Sequence[asyncio.Event]) -> _Slot | None:
        """Wait for a free slot; None if the work shall stop before it has begun."""
        if self._idle:
            return self._idle.pop()
        waiter: asyncio.Future[_Slot] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await _first_of(waiter, stops)
        except asyncio.CancelledError:
            if waiter.done():
                self._release(waiter.result())
            raise
        finally:
            self._waiters.remove(waiter)
        return waiter.result() if waiter.done() else None

    def _release(self, slot: _Slot) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(slot)
                return
        self._idle.append(slot)

    def _process_references(self) -> list[str]:
        loaded = self._capabilities.values()
        return [one.reference for one in loaded if one.capability.mode == "process"]


async def _first_of(waiter: asyncio.Future[_Slot], events: Sequence[asyncio.Event]) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(event.wait(), name="slot or stop") for event in events]
        anything: list[asyncio.Future[Any]] = [waiter, *tasks]
        await asyncio.wait(anything, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def _unknown(order: RunOrder) -> WorkFailure:
    # Another node, or this one after its upgrade is undone, may well have it.
    return WorkFailure(
        "CAPABILITY_UNKNOWN",
        f"this node has no capability {order.capability} version {order.capability_version};"
        " install its package and restart the agent",
        retryable=True,
        infrastructure=True,
    )
