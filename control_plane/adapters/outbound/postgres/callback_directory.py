"""Endpoints of callbacks on PostgreSQL, remembered for a moment."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from control_plane.core.applications.application import callback_secret_place
from control_plane.core.callbacks.domain import CallbackTarget
from foundation.clock import Clock
from foundation.postgres.named_sql import NamedSql
from foundation.postgres.pool import Database
from foundation.secrets import KeyRing

_SQL: Final = NamedSql.load("control_plane.sql.queries", "callbacks.sql")
ENTRIES_MAX: Final = 10_000
SECRET_TTL_S: Final = 5.0
"""How long a rotated secret or a 410 may be missed by this replica."""


@dataclass(frozen=True, slots=True)
class _Application:
    secret: bytes | None
    disabled: bool
    until_s: float


class PostgresCallbackDirectory:
    """Implements CallbackDirectory.

    A task's URL never changes, so it is remembered by execution; an application's secret
    and switch are read again every few seconds.
    """

    def __init__(self, database: Database, keys: KeyRing, clock: Clock) -> None:
        self._database = database
        self._keys = keys
        self._clock = clock
        self._urls: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._applications: dict[str, _Application] = {}

    async def target(self, execution_id: str) -> CallbackTarget | None:
        """Return where the execution's events go; None if its application has no secret."""
        application_id, url = await self._url(execution_id)
        application = await self._application(application_id)
        if application.secret is None or not url:
            return None
        return CallbackTarget(application_id, url, application.secret, application.disabled)

    async def disable(self, application_id: str) -> None:
        """Deliver nothing more to the application until its endpoint is set again."""
        await self._database.fetch(_SQL.disable_callbacks, application_id)
        self._applications.pop(application_id, None)

    async def _url(self, execution_id: str) -> tuple[str, str]:
        known = self._urls.get(execution_id)
        if known is not None:
            return known
        row = await self._database.fetchrow(_SQL.callback_target, execution_id)
        if row is None:
            return "", ""
        self._note(row["application_id"], row["callback_secret"], disabled=row["disabled"])
        known = self._urls[execution_id] = (row["application_id"], row["callback_url"])
        while len(self._urls) > ENTRIES_MAX:
            self._urls.popitem(last=False)
        return known

    async def _application(self, application_id: str) -> _Application:
        known = self._applications.get(application_id)
        if known is not None and known.until_s > self._clock.monotonic():
            return known
        row = await self._database.fetchrow(_SQL.application_callback, application_id or None)
        if row is None:
            return _Application(None, disabled=False, until_s=0.0)
        return self._note(application_id, row["callback_secret"], disabled=row["disabled"])

    def _note(self, application_id: str, sealed: bytes | None, *, disabled: bool) -> _Application:
        secret = None
        if sealed is not None:
            secret = self._keys.open(sealed, callback_secret_place(application_id))
        until_s = self._clock.monotonic() + SECRET_TTL_S
        noted = self._applications[application_id] = _Application(secret, disabled, until_s)
        return noted
