"""systemd's notifications: ready, stopping, watchdog; nothing at all outside of systemd."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

_SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
_WATCHDOG_VARIABLE: Final = "WATCHDOG_USEC"
_WATCHDOG_PID_VARIABLE: Final = "WATCHDOG_PID"


class SystemdNotifier:
    """Sends states to the socket that systemd names in the environment, if it does."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get(_SOCKET_VARIABLE, "")
        # A leading @ stands for the abstract namespace's zero byte.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = _watchdog_s(environ)

    @property
    def watchdog_s(self) -> float | None:
        """Seconds within which systemd wants a sign of life, or None if it wants none."""
        return self._watchdog_s

    def ready(self) -> None:
        """Say that start-up is complete."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Say that the ordered shutdown has begun."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Give the watchdog its sign of life."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
            try:
                out.sendto(state.encode("ascii"), self._address)
            except OSError:
                # A supervisor that does not listen must not stop us from working.
                return


async def _works() -> None:
    return


class SystemdWatchdog:
    """Signs of life from the event loop, so that systemd ends a process whose loop stalls."""

    name = "systemd-watchdog"

    def __init__(
        self, notifier: SystemdNotifier, check: Callable[[], Awaitable[None]] = _works
    ) -> None:
        """`check` is awaited before each sign: while it hangs there is none.

        What it raises ends this service, and so the process.
        """
        self._notifier = notifier
        self._check = check
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def run(self) -> None:
        """Give three signs per watchdog period until stopped; only wait if none is wanted."""
        period_s = self._notifier.watchdog_s
        while not self._stopping.is_set():
            if period_s is not None:
                await self._check()
            self._notifier.alive()
            try:
                async with asyncio.timeout(None if period_s is None else period_s / 3):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """End the signs."""
        self._stopping.set()


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    period_us = environ.get(_WATCHDOG_VARIABLE, "")
    # Inherited by children, for whom it is not meant.
    meant_for = environ.get(_WATCHDOG_PID_VARIABLE, str(os.getpid()))
    if not period_us.isdecimal() or meant_for != str(os.getpid()):
        return None
    return int(period_us) / 1e6
