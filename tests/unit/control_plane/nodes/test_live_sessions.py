"""What a replica remembers of its sessions: queues, credits, windows, replacement, states."""

import asyncio

import pytest

from control_plane.core.nodes.commands import CommandKind
from control_plane.core.nodes.domain import NodeState, SentCommand, SessionRef, lease
from control_plane.core.nodes.session import Heartbeat, HeartbeatAnswer, LiveSessions, Session
from control_plane.core.scheduling.domain import Runtime
from control_plane.core.wakeups import LocalHints
from control_plane.limits import OUTGOING_COUNT_MAX

LEASE = lease("a", 1)


def _session(generation: int = 1, node_id: str = "n", credits_left: int = 2) -> Session:
    return Session(
        SessionRef(node_id, generation),
        credit_count=credits_left,
        window_size=3,
        missing=(),
        ready=True,
        not_ready_reason="",
        now_s=0.0,
    )


def _sent(sequence: int, kind: CommandKind = CommandKind.RUN, *, first: bool = True) -> SentCommand:
    return SentCommand("n", sequence, f"c{sequence}", kind, "{}", first, 0.0)


async def test_messages_come_out_in_order_and_end_with_the_session() -> None:
    """The writer gets what was offered, in order; an ended session takes nothing more."""
    session = _session()
    for number in (1, 2):
        session.offer(HeartbeatAnswer(number))
    assert [await session.next_outgoing() for _ in range(2)] == [
        HeartbeatAnswer(1),
        HeartbeatAnswer(2),
    ]
    waiting = asyncio.ensure_future(session.next_outgoing())
    await asyncio.sleep(0)
    session.offer(HeartbeatAnswer(3))
    assert await waiting == HeartbeatAnswer(3)
    session.end()
    session.offer(HeartbeatAnswer(4))
    assert session.outgoing_count == 0


async def test_a_node_that_does_not_read_loses_its_session() -> None:
    """Memory for one node is bounded."""
    session = _session()
    for number in range(OUTGOING_COUNT_MAX + 1):
        session.offer(HeartbeatAnswer(number))
    error = await session.wait_ended()
    assert error is not None
    assert error.reason == "NODE_NOT_READING"
    assert not session.can_take


def test_credits_and_window_count_what_is_sent_once() -> None:
    """A RUN takes a credit when first sent; a repeat takes none and widens no window."""
    session = _session()
    session.commands_taken([_sent(1), _sent(2, CommandKind.CANCEL)])
    assert (session.credit_count, session.is_blocked) == (1, False)
    session.commands_taken([_sent(1, first=False), _sent(3, CommandKind.CANCEL)])
    assert (session.credit_count, session.is_blocked) == (1, True)
    session.commands_acked(2)
    assert not session.is_blocked
    session.commands_taken([_sent(4)])
    assert session.is_blocked


def test_the_newest_heartbeat_waits_for_the_tick() -> None:
    """A failed tick's list comes back only where no newer one has come."""
    session = _session()
    first, second = Heartbeat(1, [LEASE], ready=True), Heartbeat(2, [LEASE], ready=True)
    session.heard(first, 1.0)
    assert session.take_pending() == first
    session.put_back(first)
    session.heard(second, 2.0)
    session.put_back(first)
    assert session.take_pending() == second
    session.heard(Heartbeat(3, [], ready=True), 3.0)
    assert session.take_pending() is None
    assert (session.last_heartbeat_number, session.last_heard_s) == (3, 3.0)


def test_the_row_is_written_on_change_and_when_old() -> None:
    """No row per heartbeat: only changes, and one refresh in half a TTL."""
    session = _session()
    args = {"stale_after_s": 30.0}
    assert session.state_to_write(silent=False, now_s=1.0, **args) is None
    silent = session.state_to_write(silent=True, now_s=2.0, **args)
    assert silent == NodeState(session.ref, Runtime.SILENT)
    assert not session.state_written(silent, 2.0)
    assert session.state_to_write(silent=True, now_s=99.0, **args) is None
    back = session.state_to_write(silent=False, now_s=99.0, **args)
    assert back is not None
    assert session.state_written(back, 99.0)
    assert session.state_to_write(silent=False, now_s=128.0, **args) is None
    assert session.state_to_write(silent=False, now_s=129.0, **args) is not None
    session.heard(Heartbeat(1, [], ready=False, not_ready_reason="disk full"), 129.0)
    shown = session.state_to_write(silent=False, now_s=129.0, **args)
    assert shown is not None
    assert (shown.runtime, shown.not_ready_reason) == (Runtime.NOT_READY, "disk full")


@pytest.mark.parametrize("newer_first", [False, True])
async def test_of_two_sessions_the_newer_generation_stays(newer_first: bool) -> None:  # noqa: FBT001
    """Whatever the order in which their transactions answer."""
    live = LiveSessions(LocalHints())
    old, new = _session(1), _session(2)
    for session in (new, old) if newer_first else (old, new):
        live.add(session)
    assert live.get("n") is new
    error = await old.wait_ended()
    assert error is not None
    assert error.reason == "SESSION_REPLACED"
    live.remove(old)
    assert live.get("n") is new
    live.remove(new)
    assert (len(live), live.take_closed()) == (0, [SessionRef("n", 2)])


def test_a_session_whose_welcome_never_left_is_closed_too() -> None:
    """Its row says READY, so its end has to be written; a failed write is repeated."""
    live = LiveSessions(LocalHints())
    session = _session(3)
    live.remove(session)
    closed = live.take_closed()
    assert closed == [SessionRef("n", 3)]
    live.put_back_closed([SessionRef("n", 2), *closed])
    assert live.take_closed() == closed


def test_hints_from_elsewhere_are_not_passed_on() -> None:
    """Only nodes in session here are looked at, or two replicas would pass a hint for ever."""
    hints = LocalHints()
    live = LiveSessions(hints)
    live.add(_session())
    assert hints.nodes.take(9) == ["n"]
    live.wake(["n", "stranger"])
    assert hints.nodes.take(9) == ["n"]
