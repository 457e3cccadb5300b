"""The engine's JetStream consumer: messages become hints, and are acked once these are served."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext
from nats.js.errors import BadRequestError, NotFoundError

from control_plane.adapters.nats_stream import (
    CONSUMER,
    DELIVERIES,
    STREAM,
    ExecutionNote,
    consumer_config,
    stream_config,
)
from control_plane.core.engine.application import EngineDriver
from control_plane.core.wakeups import LocalHints
from foundation.clock import Clock
from foundation.wakeup import Wakeup

CHECK_INTERVAL_S: Final = 30.0
# After a check that failed, and between two that the publisher asks for.
RECHECK_INTERVAL_S: Final = 2.0
_REQUEST_TIMEOUT_S: Final = 3.0

_log = structlog.stdlib.get_logger(__name__)


class Connection(Protocol):
    """The replica's connection to NATS, as far as the consumer needs it."""

    @property
    def client(self) -> Client:
        """The client, connected or not."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether something that is sent now would leave now."""
        ...

    def on_connected(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Await `listener` after each connection."""
        ...


class EngineConsumer:
    """A Service: keeps stream and consumer in being, and serves what is delivered.

    A message says that an event was stored. What this replica has advanced since is acked
    without a look at the database. A message that is never acked costs nothing: the sweep
    finds what it announced.
    """

    name: Final = "engine-consumer"

    def __init__(
        self,
        connection: Connection,
        driver: EngineDriver,
        hints: LocalHints,
        clock: Clock,
        *,
        stream_bytes_max: int,
    ) -> None:
        self._connection = connection
        self._driver = driver
        self._hints = hints
        self._clock = clock
        self._stream_bytes_max = stream_bytes_max
        # By execution, then by the message's place in the stream: a message that is delivered
        # again takes the place of its earlier delivery.
        self._waiting: dict[str, dict[int, tuple[int, Msg]]] = {}
        self._to_ack: list[Msg] = []
        self._subscription: Subscription | None = None
        self._wakeup = Wakeup()
        self._check_at_s = self._checked_at_s = clock.monotonic()
        self._stopping = False
        self._running = False
        self._finished = asyncio.Event()
        self.checked: Final = Wakeup()
        """Set after each check that found, or made, everything as it has to be."""
        driver.on_settled(self._settled)
        connection.on_connected(self._connected)

    @property
    def waiting_count(self) -> int:
        """Executions whose messages are not acked yet."""
        return len(self._waiting)

    def recheck(self) -> None:
        """Look soon whether stream and consumer are there, as something suggests otherwise."""
        self._check_at_s = min(self._check_at_s, self._checked_at_s + RECHECK_INTERVAL_S)
        self._wakeup.set()

    async def start(self) -> None:
        """Nothing has to be ready: without NATS the sweep does the work."""

    async def run(self) -> None:
        """Check and ack until `stop`."""
        self._running = True
        try:
            while not self._stopping:
                await self._tend()
                wait_s = self._check_at_s - self._clock.monotonic()
                await self._wakeup.wait(max(wait_s, 0.0))
        finally:
            self._finished.set()

    async def stop(self) -> None:
        """Stop tending; what is not acked is delivered to another replica."""
        self._stopping = True
        self._wakeup.set()
        if self._running:
            await self._finished.wait()

    async def _connected(self) -> None:
        self._check_at_s = self._clock.monotonic()
        self._wakeup.set()

    async def _tend(self) -> None:
        to_ack, self._to_ack = self._to_ack, []
        for message in to_ack:
            await _acked(message)
        if self._clock.monotonic() >= self._check_at_s:
            self._checked_at_s = self._clock.monotonic()
            self._check_at_s = self._checked_at_s + CHECK_INTERVAL_S
            await self._check()

    # -- stream and consumer

    async def _check(self) -> None:
        """Make whatever is missing; a failure is looked at again soon."""
        if not self._connection.is_connected:
            return  # The next connection asks for a check.
        try:
            jetstream = self._connection.client.jetstream(timeout=_REQUEST_TIMEOUT_S)
            if not await _has_consumer(jetstream):
                await self._make(jetstream)
                await self._resubscribe()
            elif self._subscription is None:
                await self._resubscribe()
        except (NatsError, TimeoutError, OSError) as error:
            _log.warning("nats_check_failed", error=repr(error))
            self._check_at_s = self._clock.monotonic() + RECHECK_INTERVAL_S
        else:
            self.checked.set()

    async def _make(self, jetstream: JetStreamContext) -> None:
        _log.warning("nats_stream_made", stream=STREAM, consumer=CONSUMER)
        wanted = stream_config(self._stream_bytes_max)
        try:
            await jetstream.add_stream(wanted)
        except BadRequestError:
            # It is there with other bounds.
            await jetstream.update_stream(wanted)
        await jetstream.add_consumer(STREAM, consumer_config())

    async def _resubscribe(self) -> None:
        old, self._subscription = self._subscription, None
        if old is not None:
            await old.unsubscribe()
        self._subscription = await self._connection.client.subscribe(
            DELIVERIES, queue=CONSUMER, cb=self._arrived
        )

    # -- messages

    async def _arrived(self, message: Msg) -> None:
        try:
            note = ExecutionNote.from_json(message.data)
            place = message.metadata.sequence.stream
        except (ValueError, NatsError) as error:
            _log.error("nats_message_poison", subject=message.subject, error=str(error))
            await _terminated(message)
            return
        execution_id = note.execution_id
        if self._driver.covers(execution_id, note.sequence):
            await _acked(message)
            return
        self._waiting.setdefault(execution_id, {})[place] = (note.sequence, message)
        if not self._driver.is_advancing(execution_id):
            self._hints.engine.add([execution_id])

    def _settled(self, sequences: Mapping[str, int]) -> None:
        """Let messages go that an advance has served; ask again for those it was too early for."""
        for execution_id in sequences.keys() & self._waiting.keys():
            messages = self._waiting.pop(execution_id)
            served = sequences[execution_id]
            early = {place: one for place, one in messages.items() if one[0] > served}
            self._to_ack += [
                message for place, (_, message) in messages.items() if place not in early
            ]
            if early:
                self._waiting[execution_id] = early
                self._hints.engine.add([execution_id])
        if self._to_ack:
            self._wakeup.set()


async def _has_consumer(jetstream: JetStreamContext) -> bool:
    try:
        await jetstream.consumer_info(STREAM, CONSUMER)
    except NotFoundError:
        return False
    return True


async def _acked(message: Msg) -> None:
    """Ack; where that fails the message comes again, and is covered then."""
    try:
        await message.ack()
    except (NatsError, OSError) as error:
        _log.debug("nats_ack_lost", error=repr(error))


async def _terminated(message: Msg) -> None:
    try:
        await message.term()
    except (NatsError, OSError) as error:
        _log.debug("nats_ack_lost", error=repr(error))
