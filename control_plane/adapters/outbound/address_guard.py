"""Resolves a customer's host once and gives out only addresses that may be dialled."""

import asyncio
import socket
from dataclasses import dataclass

from aiohttp.abc import AbstractResolver, ResolveResult

from control_plane.core.applications.addresses import is_public


class AddressRefusedError(OSError):
    """The host has no address, or one on a network that is not to be called."""


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Resolution with the check; every address of a host must pass, not just one."""

    private_allowed: bool

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host name or literal; AddressRefusedError."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise AddressRefusedError(f"{host} cannot be resolved: {error}") from error
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        refused = [one for one in addresses if not (self.private_allowed or is_public(one))]
        if refused or not addresses:
            raise AddressRefusedError(
                f"{host} is at {', '.join(refused) or 'no address'}, which is not to be called"
            )
        return addresses


class GuardedResolver(AbstractResolver):
    """Lets aiohttp dial the very addresses that were checked."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the checked addresses of a host; OSError if there is none to dial."""
        del family  # Every family is checked, so that none is a way around.
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._guard.resolve(host, port)
        ]

    async def close(self) -> None:
        """Hold nothing, so close nothing."""
