"""The submitter: what an application does, over a few connections."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

import grpc.aio

from foundation.clock import Clock
from foundation.errors import TdpError
from foundation.grpc.channel import (
    ChannelConfig,
    bearer_metadata,
    call_unary,
    open_channel,
    owned_call,
)
from foundation.grpc.status import from_rpc_error
from tdp.control.v1 import task_pb2
from tdp.control.v1 import task_service_pb2 as pb
from tdp.control.v1 import task_service_pb2_grpc as pb_grpc
from tools.bench.errors import BenchError
from tools.bench.plan import WORKFLOW_NAME

_CALL_TIMEOUT_S = 60.0
_STARTED = "execution.started"


@dataclass(frozen=True, slots=True)
class Watched:
    """One execution as its submitter saw it; seconds since just before CreateTask was called."""

    execution_id: str
    submitted_at: datetime
    accepted_s: float
    started_s: float
    finished_s: float


class Submitter:
    """Creates tasks of the benchmark's workflow, and watches them."""

    def __init__(
        self, stubs: Sequence[pb_grpc.TaskServiceStub], api_key: str, run: str, clock: Clock
    ) -> None:
        """Take a stub for each connection; `run` sets this run's idempotency keys apart."""
        self._stubs = itertools.cycle(stubs)
        self._metadata = bearer_metadata(api_key)
        self._run = run
        self._clock = clock
        self._numbers = itertools.count(1)

    async def submit(self) -> str:
        """Create one task and answer its execution's id."""
        return await self._create(next(self._stubs))

    async def submit_many(self, count: int, concurrency: int) -> list[str]:
        """Create `count` tasks with `concurrency` calls in flight; answer the executions' ids.

        Raises:
            BenchError: one was refused.
        """
        left = iter(range(count))

        async def work() -> list[str]:
            return [await self.submit() for _ in left]

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(work(), name=f"submitter {number}")
                    for number in range(min(concurrency, count))
                ]
        except* TdpError as refusals:
            raise BenchError(f"a task was not accepted: {refusals.exceptions[0]}") from refusals
        return [made for task in tasks for made in task.result()]

    async def submit_and_watch(self) -> Watched:
        """Create one task, watch it to its end, and answer when what was seen.

        Raises:
            BenchError: it ended otherwise than SUCCEEDED.
        """
        stub = next(self._stubs)
        submitted_at, began_s = self._clock.now(), self._clock.monotonic()
        execution_id = await self._create(stub)
        accepted_s = self._clock.monotonic() - began_s
        seen_s = {
            event.type: self._clock.monotonic() - began_s
            async for event in self._events(stub, execution_id)
        }
        finished_s = seen_s.get("execution.succeeded")
        if finished_s is None or _STARTED not in seen_s:
            raise BenchError(f"execution {execution_id} only had the events {sorted(seen_s)}")
        return Watched(execution_id, submitted_at, accepted_s, seen_s[_STARTED], finished_s)

    async def _create(self, stub: pb_grpc.TaskServiceStub) -> str:
        number = next(self._numbers)
        request = pb.CreateTaskRequest(
            idempotency_key=f"bench-{self._run}-{number}",
            name=f"bench {number}",
            workflow_name=WORKFLOW_NAME,
            input_json=json.dumps({"value": number}),
        )
        response = await call_unary(
            stub.CreateTask, request, timeout_s=_CALL_TIMEOUT_S, metadata=self._metadata
        )
        return response.execution_id

    async def _events(
        self, stub: pb_grpc.TaskServiceStub, execution_id: str
    ) -> AsyncIterator[task_pb2.ExecutionEvent]:
        request = pb.WatchExecutionRequest(execution_id=execution_id)
        started = stub.WatchExecution(request, timeout=_CALL_TIMEOUT_S, metadata=self._metadata)
        async with owned_call(started) as call:
            try:
                async for message in call:
                    yield message.event
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error


@asynccontextmanager
async def submitter(
    target: str, api_key: str, *, channels: int, run: str, clock: Clock
) -> AsyncIterator[Submitter]:
    """Open the connections of a submitter, and close them at the end of the block."""
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(open_channel(ChannelConfig(target=target)))
            for _ in range(channels)
        ]
        stubs = [pb_grpc.TaskServiceStub(channel) for channel in opened]
        yield Submitter(stubs, api_key, run, clock)
