"""Rotating the key of secrets at rest: everything is sealed again, bound to its row as before."""

import pytest

from control_plane.adapters.outbound.postgres.sealed_secrets import PostgresSealedSecrets
from control_plane.core.applications import resealing
from control_plane.core.applications.application import (
    callback_secret_place,
    provider_secret_place,
)
from control_plane.core.applications.resealing import Resealed, SealedSecret, reseal
from control_plane.core.grants.domain import grant_secret_place
from foundation.ids import SequentialIds
from foundation.postgres.pool import Database
from foundation.secrets import KeyRing, SecretUnreadableError

OLD = KeyRing({1: b"1" * 32}, current=1)
BOTH = KeyRing({1: b"1" * 32, 2: b"2" * 32}, current=2)
NEW = KeyRing({2: b"2" * 32}, current=2)
IDS = SequentialIds()
APPLICATIONS = [IDS.new_id() for _ in range(5)]

_SWAPPED_ROWS = """
update applications
set callback_secret = (select callback_secret from applications where application_id = $1)
where application_id = $2
"""
_SWAPPED_COLUMNS = """
update applications
set callback_secret = resource_provider_secret
where application_id = $1 and $2::uuid is not null
"""


async def _fill(database: Database) -> None:
    """Store applications: with both secrets, one, none, and one that the new key sealed."""
    for number, one in enumerate(APPLICATIONS):
        keys = BOTH if number == 4 else OLD
        callback = keys.seal(b"callback", callback_secret_place(one)) if number != 3 else None
        provider = OLD.seal(b"provider", provider_secret_place(one)) if number < 2 else None
        await database.fetch(
            "insert into applications (application_id, name, callback_secret, "
            "resource_provider_secret) values ($1, $2, $3, $4)",
            one,
            f"application {number}",
            callback,
            provider,
        )
    for lasts, keys in (("1 minute", OLD), ("1 minute", BOTH), ("-1 minute", OLD)):
        grant_id = IDS.new_id()
        await database.fetch(
            "insert into grants (grant_id, attempt_id, lease_version, idempotency_key, "
            "resource_ref, method, secret, expires_at) "
            "values ($1, $1, 1, 'k', 'r', 'GET', $2, tdp_now() + $3::text::interval)",
            grant_id,
            keys.seal(b"{}", grant_secret_place(APPLICATIONS[0], grant_id)),
            lasts,
        )


async def test_after_a_rotation_the_old_key_can_be_dropped(
    control_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every outdated secret is sealed again, once, and opens in its own row with the new key."""
    monkeypatch.setattr(resealing, "APPLICATIONS_PER_PAGE", 2)
    await _fill(control_database)
    secrets = PostgresSealedSecrets(control_database)
    first = await reseal(secrets, BOTH)
    again = await reseal(secrets, BOTH)
    kept = await secrets.page("", 100)

    assert first == Resealed(secrets=5, grants_left=1)
    assert again == Resealed(secrets=0, grants_left=1)
    assert [NEW.open(one.sealed, one.place) for one in kept] == [
        b"callback", b"provider", b"callback", b"provider", b"callback", b"callback",
    ]  # fmt: skip


async def test_a_secret_that_was_set_meanwhile_stays(control_database: Database) -> None:
    """Sealing again never brings back a secret that its owner has just replaced."""
    await _fill(control_database)
    secrets = PostgresSealedSecrets(control_database)
    (stale, *_) = await secrets.page("", 1)
    newer = BOTH.seal(b"rotated", stale.place)
    await control_database.fetch(
        "update applications set callback_secret = $1 where application_id = $2",
        newer,
        stale.place.row,
    )

    assert not await secrets.replace(stale, BOTH.seal(b"callback", stale.place))
    assert (await secrets.page("", 1))[0] == SealedSecret(stale.place, newer)


async def test_secrets_swapped_between_rows_or_columns_stop_it(control_database: Database) -> None:
    """A ciphertext that was put into another row, or the other column, is no secret there."""
    for swap in (_SWAPPED_ROWS, _SWAPPED_COLUMNS):
        await control_database.fetch("truncate applications cascade")
        await _fill(control_database)
        await control_database.fetch(swap, *APPLICATIONS[:2])
        with pytest.raises(SecretUnreadableError, match="moved"):
            await reseal(PostgresSealedSecrets(control_database), BOTH)
