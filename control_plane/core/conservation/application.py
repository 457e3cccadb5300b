"""Checks the equations of conservation over a window."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from control_plane.core.conservation.domain import (
    INVARIANTS,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    Balance,
)
from control_plane.core.conservation.ports import ConservationReader
from control_plane.core.errors import ControlPlaneError
from foundation.errors import InvalidArgumentError
from foundation.principals import Principal, PrincipalKind, Scope


class WindowInvalidError(ControlPlaneError, InvalidArgumentError):
    """The window ends before it starts, or is too long to be counted."""

    reason = "WINDOW_INVALID"


class Conservation:
    """Compares what was accepted with what is known of it.

    What retention removes is not missed: windows begin no earlier than `kept_for` ago, None where
    nothing is ever removed.
    """

    def __init__(self, reader: ConservationReader, kept_for: timedelta | None = None) -> None:
        self._reader = reader
        self._kept_for = kept_for

    async def check_for(
        self, principal: Principal, start: datetime | None, end: datetime | None
    ) -> Sequence[Balance]:
        """Check for an operator; PermissionDeniedError for anybody else, else as `check`."""
        principal.require_kind(PrincipalKind.OPERATOR)
        principal.require_scope(Scope.READ)
        return await self.check(start, end)

    async def check(self, start: datetime | None, end: datetime | None) -> Sequence[Balance]:
        """Check every equation; unset times mean now and 24 h before. WindowInvalidError."""
        now = await self._reader.database_time()
        last = now if end is None else end
        first = last - WINDOW_DEFAULT if start is None else start
        if first >= last:
            raise WindowInvalidError.of_field(
                "start_time", f"{first} is not before the end, {last}: swap them"
            )
        if last - first > WINDOW_MAX:
            raise WindowInvalidError.of_field(
                "start_time",
                f"{first} is over {WINDOW_MAX.days} days before {last}: ask twice",
            )
        if self._kept_for is not None:
            first = max(first, now - self._kept_for)
        return [await self._reader.balance(one, first, last) for one in INVARIANTS]

    async def check_last(self, window: timedelta) -> Sequence[Balance]:
        """Check what was created within the last `window`, for a gauge."""
        now = await self._reader.database_time()
        return await self.check(now - window, now)
