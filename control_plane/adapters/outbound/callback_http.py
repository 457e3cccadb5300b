"""Callbacks over HTTP: signed afresh for each try, no redirects, bounded in time and bytes."""

from typing import Final
from urllib.parse import urlsplit

import aiohttp

from control_plane.adapters.outbound.address_guard import AddressGuard, GuardedResolver
from control_plane.core.callbacks.domain import CallbackTarget, outcome_of_status
from control_plane.limits import CALLBACK_RESPONSE_BYTES_MAX, CALLBACK_TIMEOUT_S
from foundation.clock import Clock
from foundation.outbox.model import Outcome, Retry
from foundation.signatures import SigningSecret, delivery_headers

_CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"


class HttpCallbacks:
    """Implements CallbackTransport for http and https; a service that holds its connections."""

    def __init__(self, guard: AddressGuard, clock: Clock) -> None:
        self._guard = guard
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the session; nothing is dialled before the first delivery."""
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(self._guard), use_dns_cache=False, limit=256, limit_per_host=32
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=CALLBACK_TIMEOUT_S),
            trust_env=False,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Close the session; idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def deliver(self, target: CallbackTarget, event_id: str, body: bytes) -> Outcome:
        """POST the body once; every failure is an outcome."""
        assert self._session is not None, "open it before use"
        parts = urlsplit(target.url)
        shown = f"{parts.scheme}://{parts.netloc}"
        headers = {
            "content-type": _CONTENT_TYPE,
            **delivery_headers(
                body,
                SigningSecret(target.secret),
                event_id=event_id,
                at_s=int(self._clock.now().timestamp()),
            ),
        }
        try:
            # A literal address never meets the resolver, so it is checked here.
            await self._guard.resolve(parts.hostname or "", parts.port or 443)
            async with self._session.post(
                target.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                await response.content.read(CALLBACK_RESPONSE_BYTES_MAX)
                return outcome_of_status(
                    response.status,
                    response.headers.get("retry-after"),
                    shown,
                    self._clock.now(),
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return Retry(f"{shown} could not be called: {type(error).__name__}: {error}")
