"""Sessions end with their time and with their key, and cannot be made by anybody else."""

import hashlib

from business_gateway.core.console.sessions import SESSION_VALID_S, Sessions
from foundation.clock import ManualClock

KEY = hashlib.sha256(b"key").digest()
SECRET = b"a secret that all replicas share"


def test_a_session_is_read_by_every_replica_until_its_time_is_over() -> None:
    """What one replica sealed another opens, for twelve hours and not a second longer."""
    clock = ManualClock()
    first, second = Sessions(SECRET, [KEY], clock), Sessions(SECRET, [KEY], clock)
    session = first.with_operator(first.with_client(first.begin(), KEY), "operator's key")
    cookie = first.seal(session)
    assert second.read(cookie) == session
    clock.advance(SESSION_VALID_S - 1)
    assert second.read(cookie) == session
    clock.advance(1)
    assert second.read(cookie) is None


def test_a_withdrawn_key_ends_its_sessions() -> None:
    """A client's key that is no longer in the settings leaves at most the operator."""
    clock = ManualClock()
    before, after = Sessions(SECRET, [KEY], clock), Sessions(SECRET, [], clock)
    client = before.with_client(before.begin(), KEY)
    assert after.read(before.seal(client)) is None
    both = after.read(before.seal(before.with_operator(client, "o")))
    assert both is not None
    assert (both.client_key_sha256, both.is_operator) == ("", True)


def test_nobody_else_makes_or_changes_a_session() -> None:
    """Another secret does not open it, a changed character damages it, and it hides its key."""
    clock = ManualClock()
    ours, theirs = Sessions(SECRET, [KEY], clock), Sessions(b"another", [KEY], clock)
    session = ours.with_operator(ours.begin(), "operator's key")
    cookie = ours.seal(session)
    assert theirs.read(cookie) is None
    middle = len(cookie) // 2
    other = "A" if cookie[middle] != "A" else "B"
    assert ours.read(cookie[:middle] + other + cookie[middle + 1 :]) is None
    assert "operator's key" not in repr(session)
    assert ours.read(ours.seal(ours.begin())) is None
