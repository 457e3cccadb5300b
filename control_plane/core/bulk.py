"""Acts on many things under one idempotency key: done in parts, and gone on with after a break.

How far an act came is kept with its key, in the transaction of each part. So a caller whose call
was cut off repeats it: what was done counts, and nothing is done twice.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Final, Self

BULK_COUNT_MAX: Final = 10_000
"""Things that one act looks at, at most."""
DRY_RUN_COUNT_MAX: Final = 1_000_000
"""Up to where a dry run counts."""


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """How far an act came, also the answer of a finished one.

    `position` names the last thing that was looked at, in the order of the act; empty at the
    beginning. `has_more` says that something was left when the act ended by BULK_COUNT_MAX.
    """

    matched: int = 0
    changed: int = 0
    refused: int = 0
    position: str = ""
    done: bool = False
    has_more: bool = False

    def part_size(self, size: int) -> int:
        """Return how many things the next part may look at, at most `size`."""
        return min(size, BULK_COUNT_MAX - self.matched)

    def after(
        self, *, matched: int, changed: int, refused: int, position: str, more: bool
    ) -> "BulkProgress":
        """Return the progress after a part; `more` says that there was something behind it."""
        total = self.matched + matched
        done = not more or total >= BULK_COUNT_MAX
        return BulkProgress(
            matched=total,
            changed=self.changed + changed,
            refused=self.refused + refused,
            position=position or self.position,
            done=done,
            has_more=done and more,
        )

    def to_json(self) -> str:
        """Return it as the text that is kept with the key."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class BulkPart:
    """What one part came to: the progress after it, and the executions that it changed.

    `replayed` says that the act was done before this part was asked for.
    """

    progress: BulkProgress
    execution_ids: tuple[str, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class BulkAnswer:
    """What the caller is told; `created` is False for the repetition of a finished act."""

    matched: int
    changed: int
    refused: int
    has_more: bool
    created: bool


def dry_run_answer(count: int) -> BulkAnswer:
    """Return the answer of a dry run that counted so many."""
    return BulkAnswer(count, 0, 0, has_more=count > BULK_COUNT_MAX, created=True)


async def run_to_end(
    advance: Callable[[], Awaitable[BulkPart]], announce: Callable[[BulkPart], None]
) -> BulkAnswer:
    """Advance an act part by part until it is done, and announce each after its commit."""
    part = await advance()
    created = not part.replayed
    announce(part)
    while not part.progress.done:
        part = await advance()
        announce(part)
    told = part.progress
    return BulkAnswer(told.matched, told.changed, told.refused, told.has_more, created=created)
