"""One attempt in one child: answers its calls, and ends it for whatever reason comes first."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from foundation.clock import Clock
from foundation.errors import TdpError
from node_agent.adapters.outbound.process_host.child_handle import ChildHandle
from node_agent.adapters.outbound.process_host.config import ProcessHostConfig
from node_agent.adapters.outbound.process_host.frames import FrameBrokenError, Message
from node_agent.adapters.outbound.process_host.messages import (
    allocated_document,
    error_document,
    grant_document,
    order_document,
    outcome_from,
    request_from,
    uploaded_from,
)
from node_agent.core.execution.ports import (
    AttemptServices,
    Failed,
    Outcome,
    RunOrder,
    Stopped,
    Usage,
    WorkFailure,
)

_PERCENT_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class _Finished:
    """The child said how the work ended."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _Ended:
    """The child's connection ended in the middle of the work."""


@dataclass(frozen=True, slots=True)
class _Killed:
    """The agent ends the child: for a failure, or (None) since the work shall stop."""

    failure: WorkFailure | None


_Verdict = _Finished | _Ended | _Killed


class AttemptSupervision:
    """Runs one order in a child that is idle; to be used once."""

    def __init__(
        self,
        child: ChildHandle,
        order: RunOrder,
        services: AttemptServices,
        config: ProcessHostConfig,
        clock: Clock,
    ) -> None:
        """Take everything; nothing is sent yet."""
        self._child = child
        self._order = order
        self._services = services
        self._config = config
        self._clock = clock
        self._verdict: asyncio.Future[_Verdict] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._started_s = self._heard_s = clock.monotonic()
        self._cpu_before_s, self._memory_bytes_max = child.measured()
        self._cpu_s = self._cpu_before_s

    async def run(self, stops: Sequence[asyncio.Event]) -> Outcome:
        """Run to the end; a child that was killed, or that has stopped, has ended on return."""
        self._child.begin_log(self._order.attempt_id)
        self._child.attempt_count += 1
        await self._child.frames.send({"kind": "run", "order": order_document(self._order)})
        async with asyncio.TaskGroup() as group:
            self._begin(group, "child's messages", self._listen(group))
            self._begin(group, "child's watch", self._watch())
            for stop in stops:
                self._begin(group, "child's stop", self._stop_when(stop))
            verdict = await self._verdict
            # Open calls too: nobody is left to take their answers.
            for task in tuple(self._tasks):
                task.cancel()
        return await self._outcome(verdict, stop_asked=any(stop.is_set() for stop in stops))

    def _begin(self, group: asyncio.TaskGroup, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _decide(self, verdict: _Verdict) -> None:
        if not self._verdict.done():
            self._verdict.set_result(verdict)

    # --- What the child says. ---

    async def _listen(self, group: asyncio.TaskGroup) -> None:
        try:
            while (message := await self._child.frames.read()) is not None:
                self._heard_s = self._clock.monotonic()
                await self._handle(message, group)
            self._decide(_Ended())
        except (FrameBrokenError, LookupError, TypeError, ValueError) as error:
            problem = f"the child process sent what is no message: {error}"
            self._decide(_Killed(WorkFailure("CHILD_PROTOCOL_BROKEN", problem, retryable=True)))

    async def _handle(self, message: Message, group: asyncio.TaskGroup) -> None:
        match message["kind"]:
            case "call":
                method = self._calls()[message["method"]]
                answer = self._answer(message["number"], method, message["argument"])
                self._begin(group, f"call {message['method']}", answer)
            case "progress":
                percent = max(0, min(_PERCENT_MAX, int(message["percent"])))
                await self._services.progress(percent, str(message["message"]))
            case "finished":
                self._decide(_Finished(outcome_from(message["outcome"])))

    def _calls(self) -> dict[str, Callable[[Any], Awaitable[object]]]:
        return {
            "save_checkpoint": self._services.save_checkpoint,
            "authorize": self._authorize,
            "allocate": self._allocate,
            "uploaded": self._uploaded,
        }

    async def _authorize(self, resource_ref: str) -> object:
        return grant_document(await self._services.authorize(resource_ref))

    async def _allocate(self, argument: list[Any]) -> object:
        collection_ref, documents = argument
        requests = [request_from(document) for document in documents]
        places = await self._services.allocate(collection_ref, requests)
        return [allocated_document(place) for place in places]

    async def _uploaded(self, documents: list[Any]) -> object:
        await self._services.uploaded([uploaded_from(document) for document in documents])
        return None

    async def _answer(
        self, number: int, method: Callable[[Any], Awaitable[object]], argument: object
    ) -> None:
        try:
            answer: Message = {"result": await method(argument)}
        except TdpError as error:
            answer = {"error": error_document(error)}
        await self._child.frames.send({"kind": "answer", "number": number, **answer})

    # --- What the agent sees. ---

    async def _watch(self) -> None:
        """Measure, and kill what is over its time or memory or has gone silent."""
        while True:
            await asyncio.sleep(self._next_look_s())
            cpu_s, memory_bytes = self._child.measured()
            self._cpu_s = max(self._cpu_s, cpu_s)
            self._memory_bytes_max = max(self._memory_bytes_max, memory_bytes)
            failure = self._excess(memory_bytes)
            if failure is not None:
                self._decide(_Killed(failure))
                return

    def _next_look_s(self) -> float:
        now_s = self._clock.monotonic()
        waits = [self._config.watch_interval_s]
        if self._order.run_timeout_s is not None:
            waits.append(self._started_s + self._order.run_timeout_s - now_s)
        if self._order.heartbeat_timeout_s is not None:
            waits.append(self._heard_s + self._order.heartbeat_timeout_s - now_s)
        return max(0.0, min(waits))

    def _excess(self, memory_bytes: int) -> WorkFailure | None:
        now_s, order = self._clock.monotonic(), self._order
        limit_bytes = order.memory_bytes_max or self._config.memory_bytes_max
        if memory_bytes > limit_bytes:
            return WorkFailure(
                "MEMORY_LIMIT",
                f"the work held {memory_bytes} bytes of memory, over its limit of {limit_bytes};"
                " raise the limit or give it less",
                retryable=False,
            )
        if order.run_timeout_s is not None and now_s - self._started_s >= order.run_timeout_s:
            return WorkFailure(
                "RUN_TIMEOUT",
                f"the work was not done after {order.run_timeout_s} s",
                retryable=True,
            )
        silence_s = now_s - self._heard_s
        if order.heartbeat_timeout_s is not None and silence_s >= order.heartbeat_timeout_s:
            return WorkFailure(
                "HEARTBEAT_TIMEOUT",
                f"the work gave no sign of life for {order.heartbeat_timeout_s} s",
                retryable=True,
            )
        return None

    async def _stop_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await self._child.frames.send({"kind": "stop"})
        await asyncio.sleep(self._config.stop_grace_s)
        self._decide(_Killed(None))

    # --- The end. ---

    async def _outcome(self, verdict: _Verdict, *, stop_asked: bool) -> Outcome:
        if isinstance(verdict, _Finished):
            if stop_asked:
                await self._end_child()
            else:
                self._measure_once_more()
            return self._completed(verdict.outcome)
        await self._end_child()
        if isinstance(verdict, _Killed):
            failure = verdict.failure
        else:
            failure = None if stop_asked else self._death()
        if failure is None:
            return Stopped(self._usage(Usage()))
        shown = replace(failure, log_tail=self._child.log_text())
        return Failed(shown, self._usage(Usage()))

    def _completed(self, outcome: Outcome) -> Outcome:
        usage = self._usage(outcome.usage)
        if isinstance(outcome, Failed):
            failure = replace(outcome.failure, log_tail=self._child.log_text())
            return Failed(failure, usage)
        return replace(outcome, usage=usage)

    async def _end_child(self) -> None:
        self._measure_once_more()
        self._child.kill()
        await self._child.ended()

    def _death(self) -> WorkFailure:
        ending = self._child.ending()
        hint = "; the machine may be out of memory" if "SIGKILL" in ending else ""
        return WorkFailure(
            "CHILD_DIED",
            f"the process of the work {ending}{hint}; its log shows the rest",
            retryable=True,
        )

    def _measure_once_more(self) -> None:
        cpu_s, memory_bytes = self._child.measured()
        self._cpu_s = max(self._cpu_s, cpu_s)
        self._memory_bytes_max = max(self._memory_bytes_max, memory_bytes)

    def _usage(self, told: Usage) -> Usage:
        """The child's own figures are the finer ones; a killed child has left none."""
        measured_ms = int((self._cpu_s - self._cpu_before_s) * 1_000)
        return Usage(
            cpu_time_ms=told.cpu_time_ms or measured_ms,
            memory_bytes_max=max(told.memory_bytes_max, self._memory_bytes_max),
            duration_ms=int((self._clock.monotonic() - self._started_s) * 1_000),
        )
