"""The connection between agent and child: framing, its bounds, and the log's end."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.adapters.outbound.process_host.frames import (
    FRAME_BYTES_MAX,
    FrameBrokenError,
    Frames,
    FrameTooLargeError,
)
from node_agent.adapters.outbound.process_host.log_tail import TAIL_BYTES, LogTail
from node_agent.adapters.outbound.process_host.messages import (
    allocated_document,
    allocated_from,
    order_document,
    order_from,
    outcome_document,
    outcome_from,
    uploaded_document,
    uploaded_from,
)
from node_agent.core.execution.ports import (
    AllocatedArtifact,
    Failed,
    Grant,
    Outcome,
    RunOrder,
    Stopped,
    Succeeded,
    UploadedArtifact,
    Usage,
    WorkFailure,
)
from node_agent.core.session.lease_clock import AttemptId

Pair = tuple[Frames, Frames, socket.socket]


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Frames, Frames]]:
    ours, theirs = socket.socketpair()
    ends = await Frames.over(ours), await Frames.over(theirs)
    yield ends
    for end in ends:
        end.close()


async def test_messages_arrive_whole_and_in_order(pair: tuple[Frames, Frames]) -> None:
    """Large and small ones, and then the end."""
    sent = [{"kind": "a", "text": "ü" * 500_000}, {"kind": "b"}]
    async with asyncio.TaskGroup() as group:
        for message in sent:
            group.create_task(pair[0].send(message), name="send")
        received = [await pair[1].read(), await pair[1].read()]
    assert received == sent
    pair[0].close()
    assert await pair[1].read() is None


async def test_a_message_over_the_bound_is_not_written(pair: tuple[Frames, Frames]) -> None:
    """The connection is as good as before."""
    with pytest.raises(FrameTooLargeError):
        await pair[0].send({"kind": "call", "text": "x" * FRAME_BYTES_MAX})
    await pair[0].send({"kind": "b"})
    assert await pair[1].read() == {"kind": "b"}


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", FRAME_BYTES_MAX + 1),
        struct.pack(">I", 4) + b"nope",
        struct.pack(">I", 2) + b"[]",
    ],
)
async def test_what_is_no_message_is_refused(data: bytes) -> None:
    """A length over the bound is refused before anything is kept in memory."""
    ours, theirs = socket.socketpair()
    with theirs:
        frames = await Frames.over(ours)
        theirs.sendall(data)
        with pytest.raises(FrameBrokenError):
            await frames.read()
        frames.close()


def test_records_come_back_as_they_were() -> None:
    """Orders, places and uploads survive the way as JSON, bytes and times included."""
    order = RunOrder(
        AttemptId("a"), 2, "t", "e", "s", 3, 4, "c", "1", '{"x":1}', None, Path("/w"), 1.5, None, 9
    )
    grant = Grant("g", "r", "PUT", "http://u", {"h": "v"}, datetime.now(UTC), 5, bytes(range(32)))
    place = AllocatedArtifact("p", "r", grant)
    artifact = UploadedArtifact("p", "r", 5, bytes(range(32)), "m/t")
    assert order_from(json.loads(json.dumps(order_document(order)))) == order
    assert allocated_from(json.loads(json.dumps(allocated_document(place)))) == place
    assert uploaded_from(json.loads(json.dumps(uploaded_document(artifact)))) == artifact


@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded("{}", "c", 3, Usage(1, 2, 3)),
        Failed(WorkFailure("R", "m", retryable=True, next_retry_delay_s=2.5), Usage()),
        Stopped(Usage()),
    ],
)
def test_outcomes_come_back_as_they_were(outcome: Outcome) -> None:
    """Each of the three ends survives the way as JSON."""
    assert outcome_from(json.loads(json.dumps(outcome_document(outcome)))) == outcome


@given(st.lists(st.binary(max_size=3 * TAIL_BYTES), max_size=8))
def test_the_log_tail_is_bounded_and_is_the_end(pieces: list[bytes]) -> None:
    """However the output comes in, what is kept is its end."""
    tail = LogTail()
    pieces = [piece.replace(b"\0", b"a") for piece in pieces]
    for piece in pieces:
        tail.write(piece)
    text = tail.text()
    assert len(text.encode()) <= TAIL_BYTES
    assert b"".join(pieces).decode("utf-8", "replace").endswith(text[-100:])
