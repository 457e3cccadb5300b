"""Limits by key: who may start now, who has to wait, for what and until when. Pure.

A limit is a number of slots. A slot of a concurrency limit is held until its holder is over;
one of a rate limit is taken by a start and comes back when its time has passed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from control_plane.core.errors import DocumentInvalidError

KEY_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class LimitUse:
    """That a start needs a slot of a key: `identity` tells keys apart, `label` is for people.

    `per_s` is the time of a rate in seconds, 0 for a limit on how many run at once.
    """

    identity: str
    label: str
    count: int
    per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LimitState:
    """A key under its lock: when each slot was taken that is still taken, and how many wait."""

    taken_at: Sequence[datetime] = ()
    waiting_count: int = 0


@dataclass(frozen=True, slots=True)
class LimitWait:
    """Why something may not start: the key, a sentence, and when it may, if that is known."""

    identity: str
    sentence: str
    until: datetime | None = None


@dataclass(slots=True)
class LimitBoard:
    """The locked keys of one transaction, with what it has given out so far."""

    states: Mapping[str, LimitState] = field(default_factory=dict)
    _taken: dict[str, list[datetime]] = field(init=False)
    _waiting: dict[str, int] = field(init=False)
    _counts: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        """Start from the stored slots."""
        self._taken = {key: sorted(one.taken_at) for key, one in self.states.items()}
        self._waiting = {key: one.waiting_count for key, one in self.states.items()}
        self._counts = {}

    def take(self, uses: Sequence[LimitUse], now: datetime) -> LimitWait | None:
        """Take a slot of each key, or none at all and say which one is missing."""
        for use in uses:
            self._counts[use.identity] = use.count
            if len(self._taken[use.identity]) >= use.count:
                return self._wait(use)
        for use in uses:
            self._taken[use.identity].append(now)
        return None

    def with_room(self) -> list[str]:
        """Return the keys that were asked for and have slots left, so that others may start."""
        return [key for key, count in self._counts.items() if len(self._taken[key]) < count]

    def _wait(self, use: LimitUse) -> LimitWait:
        taken = self._taken[use.identity]
        if not use.per_s:
            return LimitWait(
                use.identity,
                f"{use.label} is in use, {len(taken)} of {use.count} slots are taken; it starts "
                "when one of them is free.",
            )
        # Those that wait already go first: each gets a turn of its own, so that not all of
        # them wake for one slot.
        turn = self._waiting[use.identity]
        self._waiting[use.identity] = turn + 1
        period = timedelta(seconds=use.per_s)
        frees_first = taken[-use.count :]
        until = frees_first[turn % use.count] + period * (turn // use.count + 1)
        return LimitWait(
            use.identity,
            f"{use.label} has started {use.count} times within {use.per_s:g} s, as often as it "
            f"may; the next turn is at {until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
            until,
        )


def identity_of(*, level: str, kind: str, application_id: str, place: str, key: str) -> str:
    """Return what tells a key apart: the key comes last, since it may hold anything."""
    return f"{level}/{kind}/{application_id}/{place}/{key}"


def uses_to_json(uses: Iterable[LimitUse]) -> str:
    """Return uses as they are stored with a request; empty for none."""
    rows = [[one.identity, one.label, one.count, one.per_s] for one in uses]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")) if rows else ""


@lru_cache(maxsize=4_096)
def uses_from_json(text: str) -> tuple[LimitUse, ...]:
    """Read back what `uses_to_json` wrote; DocumentInvalidError for anything else."""
    if not text:
        return ()
    try:
        return tuple(LimitUse(*row) for row in json.loads(text))
    except (ValueError, TypeError) as error:
        raise DocumentInvalidError(f"{text[:200]!r} are no limits") from error
