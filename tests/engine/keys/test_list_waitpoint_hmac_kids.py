"""Which keys there are, by name."""

from datetime import timedelta

from flowfabric.db.rows import Connection
from flowfabric.engine.keys.list_waitpoint_hmac_kids import (
    KidList,
    VerifyingKid,
    list_waitpoint_hmac_kids,
)
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.testing import Clock
from tests import given
from tests.engine.keys.test_rotate_waitpoint_hmac_secret_all import A, B, C, rotate


async def test_an_empty_store_has_none(db: Connection) -> None:
    assert await list_waitpoint_hmac_kids(db) == KidList(current_kid=None, verifying=[])


async def test_the_key_that_signs_is_named(db: Connection) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)

    assert await list_waitpoint_hmac_kids(db) == KidList(current_kid="k1", verifying=[])


async def test_retired_keys_are_listed_until_their_grace_ends(db: Connection, clock: Clock) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    now = await clock.now()
    await rotate(db, "k2", B, grace=2)
    await rotate(db, "k3", C, grace=1)
    first = VerifyingKid(kid="k2", expires_at=now + timedelta(seconds=1))
    second = VerifyingKid(kid="k1", expires_at=now + timedelta(seconds=2))
    before = await given.everything(db)

    seen = []
    for wait in (0, 1, 0.001, 1):
        await clock.advance(wait)
        seen.append(await list_waitpoint_hmac_kids(db))

    assert {kids.current_kid for kids in seen} == {"k3"}
    assert [kids.verifying for kids in seen] == [[first, second], [first, second], [second], []]
    assert await given.everything(db) == before


async def test_no_secret_is_listed(db: Connection) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    await rotate(db, "k2", B)

    shown = repr(await list_waitpoint_hmac_kids(db))

    assert "k1" in shown
    assert A not in shown
    assert repr(bytes.fromhex(A))[2:-1] not in shown
