"""Sealing kept secrets again after their key was replaced, so that the old key can be dropped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from foundation.secrets import KeyRing, SecretPlace

APPLICATIONS_PER_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A secret as it is kept, and where."""

    place: SecretPlace
    sealed: bytes


class SealedSecrets(Protocol):
    """The secrets of applications as they are kept, and how many grants an older key sealed."""

    async def page(self, after_id: str, limit: int) -> Sequence[SealedSecret]:
        """Read the secrets of up to `limit` applications after an id, by ascending id."""
        ...

    async def replace(self, secret: SealedSecret, sealed: bytes) -> bool:
        """Keep the secret as `sealed`; False where another one was set meanwhile."""
        ...

    async def live_grants_without(self, mark: bytes) -> int:
        """Count the grants that still last and do not begin with the current key's mark."""
        ...


@dataclass(frozen=True, slots=True)
class Resealed:
    """How many secrets were sealed again, and how many live grants an older key still opens."""

    secrets: int
    grants_left: int


async def reseal(secrets: SealedSecrets, keys: KeyRing) -> Resealed:
    """Seal again with the current key what an older one sealed; SecretUnreadableError.

    May be repeated, and run beside replicas that have the current key already. Grants are left
    to expire: within 15 minutes none needs the old key.
    """
    changed, after_id = 0, ""
    while page := await secrets.page(after_id, APPLICATIONS_PER_PAGE):
        for one in page:
            if keys.is_outdated(one.sealed):
                sealed = keys.seal(keys.open(one.sealed, one.place), one.place)
                changed += await secrets.replace(one, sealed)
        after_id = page[-1].place.row
    return Resealed(changed, await secrets.live_grants_without(keys.current_mark))
