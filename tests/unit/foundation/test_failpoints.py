"""Failpoints: parsed strictly, declared in one table, counted, and deadly when asked."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.failpoints import (
    FailpointAction,
    FailpointRaisedError,
    FailpointRule,
    Failpoints,
    ReplyDroppedError,
    failpoint,
    failpoint_in_thread,
    install_failpoints,
    parse_rules,
    uninstall_failpoints,
)

NAMES = ("engine.commit.before", "engine.commit.after")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    uninstall_failpoints()


def test_rules_parse() -> None:
    """Every action, a hit number, spaces and empty parts are understood."""
    rules = parse_rules("a.b=kill; a.c=sleep:0.5@3;;a.d=drop_reply@1;a.e=raise")
    assert rules == (
        FailpointRule("a.b", FailpointAction.KILL),
        FailpointRule("a.c", FailpointAction.SLEEP, 0.5, 3),
        FailpointRule("a.d", FailpointAction.DROP_REPLY, hit_number=1),
        FailpointRule("a.e", FailpointAction.RAISE),
    )


@pytest.mark.parametrize(
    "text",
    ["a.b", "a.b=", "a.b=die", "a.b=sleep", "a.b=kill:3", "a.b=kill@0", "a.b=sleep:-1", "=kill"],
)
def test_malformed_rules_are_refused(text: str) -> None:
    """A rule that does not parse stops the start-up, naming the rule."""
    with pytest.raises(ValueError, match="failpoint rule"):
        parse_rules(text)


def test_names_are_checked() -> None:
    """Odd, repeated and undeclared names are refused."""
    with pytest.raises(ValueError, match="dotted lower case"):
        Failpoints(["Engine"])
    with pytest.raises(ValueError, match="more than once"):
        Failpoints(["a.b", "a.b"])
    with pytest.raises(ValueError, match=r"engine\.commit\.middle"):
        Failpoints(NAMES, "engine.commit.middle=kill")


async def test_nothing_happens_before_start_up() -> None:
    """Without an installed table every point is free, whatever its name."""
    await failpoint("no.such.point")
    failpoint_in_thread("no.such.point")


async def test_an_unregistered_name_raises() -> None:
    """With a table, a name it does not declare is an error even when nothing is armed."""
    install_failpoints(NAMES, {})
    await failpoint("engine.commit.before")
    with pytest.raises(ValueError, match="not declared"):
        await failpoint("engine.commit.middle")
    with pytest.raises(ValueError, match="not declared"):
        failpoint_in_thread("engine.commit.middle")


async def test_the_nth_hit_alone_fires() -> None:
    """With @2 the first and third hit pass, and all three are counted."""
    table = install_failpoints(NAMES, {"TDP_FAILPOINTS": "engine.commit.after=raise@2"})
    await failpoint("engine.commit.after")
    with pytest.raises(FailpointRaisedError):
        await failpoint("engine.commit.after")
    await failpoint("engine.commit.after")
    assert table.hits["engine.commit.after"] == 3


async def test_drop_reply_looks_like_a_lost_connection() -> None:
    """A dropped reply is retryable, and a ConnectionError to whoever handles those."""
    install_failpoints(NAMES, {"TDP_FAILPOINTS": "engine.commit.after=drop_reply"})
    with pytest.raises(ConnectionError) as caught:
        failpoint_in_thread("engine.commit.after")
    assert isinstance(caught.value, ReplyDroppedError)
    assert caught.value.retryable


async def test_sleep_passes_afterwards() -> None:
    """A sleeping point goes on after its seconds, in both variants."""
    install_failpoints(NAMES, {"TDP_FAILPOINTS": "engine.commit.after=sleep:0.001"})
    await failpoint("engine.commit.after")
    failpoint_in_thread("engine.commit.after")


async def test_hits_are_written_once_each(tmp_path: Path) -> None:
    """The hits file receives the name of each point reached, once."""
    hits = tmp_path / "hits"
    install_failpoints(NAMES, {"TDP_FAILPOINT_HITS": str(hits)})
    for _ in range(3):
        await failpoint("engine.commit.before")
    failpoint_in_thread("engine.commit.after")
    assert hits.read_text().splitlines() == list(NAMES)


def test_kill_is_sigkill_and_its_hit_is_recorded(tmp_path: Path) -> None:
    """A killed process dies by SIGKILL, after its hit reached the file."""
    program = (
        "import os; from foundation.failpoints import *\n"
        "install_failpoints(['a.b'], os.environ); failpoint_in_thread('a.b'); os._exit(0)"
    )
    hits = tmp_path / "hits"
    environ = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "TDP_FAILPOINTS": "a.b=kill",
        "TDP_FAILPOINT_HITS": str(hits),
    }
    done = subprocess.run([sys.executable, "-c", program], env=environ, check=False)
    assert done.returncode == -signal.SIGKILL
    assert hits.read_text() == "a.b\n"
