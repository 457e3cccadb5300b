"""A child process of the agent: loads the capabilities once, then runs one attempt at a time."""

import asyncio
import json
import os
import resource
import socket
import sys
import tempfile
from typing import Any, Final

from foundation.child_process import be_killed_before_parent, die_with_parent
from foundation.clock import SystemClock
from foundation.logging import LogConfig, configure_logging
from node_agent.adapters.outbound.process_host.frames import Frames, Message
from node_agent.adapters.outbound.process_host.memory import (
    capped_memory,
    peak_memory_bytes,
    reset_peak_memory,
)
from node_agent.adapters.outbound.process_host.messages import order_from, outcome_document
from node_agent.adapters.outbound.process_host.remote_services import RemoteServices
from node_agent.adapters.outbound.transfers import HttpTransfers, TransferConfig
from node_agent.core.execution.ports import Outcome, RunOrder, Stopped, Usage
from node_agent.sdk.context import Context, Surroundings
from node_agent.sdk.discovery import CapabilityKey, LoadedCapability, load_capabilities
from node_agent.sdk.running import execute

_LOG_LEVEL: Final = "info"


class _Child:
    """The child's loop and its one attempt, if there is one."""

    def __init__(
        self,
        frames: Frames,
        capabilities: "dict[CapabilityKey, LoadedCapability]",
        transfers: HttpTransfers,
        group: asyncio.TaskGroup,
    ) -> None:
        self._frames = frames
        self._capabilities = capabilities
        self._transfers = transfers
        self._group = group
        self._services = RemoteServices(frames)
        self._context: Context | None = None
        self._work: asyncio.Task[Outcome] | None = None
        self._stop_asked = False

    async def serve(self) -> None:
        """Do what the agent says until it closes the connection."""
        await self._frames.send({"kind": "ready"})
        while (message := await self._frames.read()) is not None:
            match message["kind"]:
                case "run":
                    self._stop_asked = False
                    order = order_from(message["order"])
                    self._group.create_task(
                        self._attempt(order), name=f"attempt {order.attempt_id}"
                    )
                case "answer":
                    self._services.answered(message)
                case "stop":
                    self._stop()

    def _stop(self) -> None:
        # It may come before the work has begun, which then does not begin.
        self._stop_asked = True
        if self._context is not None and self._work is not None:
            self._context.cancel()
            self._work.cancel()

    async def _attempt(self, order: RunOrder) -> None:
        before = _cpu_s()
        can_tell_peak = reset_peak_memory()
        with capped_memory(order.memory_bytes_max):
            outcome = await self._execute(order)
        usage = Usage(
            cpu_time_ms=int((_cpu_s() - before) * 1_000),
            memory_bytes_max=peak_memory_bytes() if can_tell_peak else 0,
        )
        await self._finish(outcome, usage)

    async def _execute(self, order: RunOrder) -> Outcome:
        # What is forgotten there is deleted with the attempt, whatever ends it.
        temporary = order.work_folder / "tmp"
        await asyncio.to_thread(temporary.mkdir, exist_ok=True)
        tempfile.tempdir = str(temporary)
        surroundings = Surroundings(
            self._services, self._transfers, SystemClock(), self._services.alive
        )
        if self._stop_asked:
            return Stopped(Usage())
        self._context = Context(order, surroundings)
        capability = self._capabilities[order.capability, order.capability_version].capability
        async with asyncio.TaskGroup() as group:
            self._work = group.create_task(
                execute(capability, self._context, order.input_json), name="work"
            )
            await asyncio.wait([self._work])
        # Work that is cancelled before its first step has no outcome of its own.
        outcome = Stopped(Usage()) if self._work.cancelled() else self._work.result()
        self._context = self._work = None
        return outcome

    async def _finish(self, outcome: Outcome, usage: Usage) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        document = {**outcome_document(outcome), "usage": _usage_document(usage)}
        await self._frames.send({"kind": "finished", "outcome": document})


def _usage_document(usage: Usage) -> Message:
    return {
        "cpu_time_ms": usage.cpu_time_ms,
        "memory_bytes_max": usage.memory_bytes_max,
        "duration_ms": usage.duration_ms,
    }


def _cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


async def _serve(settings: dict[str, Any]) -> None:
    end = socket.socket(fileno=settings["descriptor"])
    frames = await Frames.over(end)
    capabilities = dict(load_capabilities(settings["references"]))
    config = TransferConfig(**settings["transfers"])
    async with HttpTransfers(config) as transfers, asyncio.TaskGroup() as group:
        await _Child(frames, capabilities, transfers, group).serve()
        # The agent is gone or wants this child gone: nobody is left to report to.
        os._exit(0)


def main() -> None:
    """Read the settings from the argument and serve."""
    settings = json.loads(sys.argv[1])
    die_with_parent(settings["parent_pid"])
    be_killed_before_parent()
    configure_logging(LogConfig(process="capability", format="console", level=_LOG_LEVEL))
    asyncio.run(_serve(settings))


if __name__ == "__main__":
    main()
