"""Find TCP ports on loopback that are free and stay free while a server restarts."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

import psutil

HOST: Final = "127.0.0.1"
_LOWEST_PORT: Final = 10_000
_HIGHEST_PORT: Final = 65_535
_LEAST_CHOICE: Final = 1_000
_TRIES_MAX: Final = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` of loopback just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do, so that connections in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """Answer a free port, outside the range that the system uses for outgoing connections.

    Inside that range a client that retries against a killed server can be given the server's
    own port as its source, connect to itself, and keep the server from coming back.
    """
    choice = _candidates()
    pick = random.SystemRandom()
    for _ in range(_TRIES_MAX):
        port = pick.choice(choice)
        if is_free(port):
            return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
        return int(port)


def listens(pid: int, port: int) -> bool:
    """Whether this very process listens on `port`: a stranger there may answer as it would."""
    try:
        sockets = psutil.Process(pid).net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets)


def _candidates() -> range:
    lowest_outgoing, highest_outgoing = _outgoing_range()
    below = range(_LOWEST_PORT, lowest_outgoing)
    above = range(highest_outgoing + 1, _HIGHEST_PORT + 1)
    widest = max(below, above, key=len)
    return widest if len(widest) >= _LEAST_CHOICE else range(_LOWEST_PORT, _HIGHEST_PORT + 1)


def _outgoing_range() -> tuple[int, int]:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except OSError:
        return 32_768, 60_999
    lowest, highest = text.split()
    return int(lowest), int(highest)
