"""The first key."""

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.keys.key import Key, active_key
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import (
    KeyAlreadySeeded,
    KeySeeded,
    seed_waitpoint_hmac_secret,
)
from flowfabric.errors import ValidationError
from flowfabric.testing import Clock
from tests import given
from tests.engine.keys.test_rotate_waitpoint_hmac_secret_all import rotate

Another = Callable[[], Awaitable[Connection]]
A, B = "a1" * 32, "b2" * 32


async def test_the_first_seed_is_stored_and_signs(db: Connection, clock: Clock) -> None:
    assert await seed_waitpoint_hmac_secret(db, "k1", A) == KeySeeded(kid="k1")

    assert await active_key(db) == Key("k1", bytes.fromhex(A))
    [row] = await db.fetch("SELECT * FROM ff.waitpoint_hmac")
    assert dict(row) == {
        "kid": "k1",
        "secret": bytes.fromhex(A),
        "rotated_at_ms": await clock.now_ms(),
        "active": True,
        "expires_at_ms": None,
    }


@pytest.mark.parametrize(("secret", "same"), [(A, True), (A.upper(), True), (B, False)])
async def test_a_second_seed_says_whether_it_is_the_same_and_writes_nothing(
    db: Connection, secret: str, same: bool
) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    before = await given.everything(db)

    answer = await seed_waitpoint_hmac_secret(db, "k1", secret)

    assert answer == KeyAlreadySeeded(kid="k1", same_secret=same)
    assert await given.everything(db) == before


async def test_a_key_that_was_rotated_away_is_still_seeded(db: Connection, clock: Clock) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    await rotate(db, "k2", B, grace=1)
    before = await given.everything(db)

    for _ in range(2):
        answer = await seed_waitpoint_hmac_secret(db, "k1", A)
        assert answer == KeyAlreadySeeded(kid="k1", same_secret=True)
        await clock.advance(2)

    assert await given.everything(db) == before


async def test_another_key_beside_one_that_signs_must_be_rotated_in(db: Connection) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match="rotate") as refused:
        await seed_waitpoint_hmac_secret(db, "k2", B)

    assert refused.value.code == "invalid_input"
    assert A not in str(refused.value)
    assert B not in str(refused.value)
    assert await given.everything(db) == before


@pytest.mark.parametrize(
    ("kid", "secret", "code"),
    [
        ("", "", "invalid_secret_hex"),
        ("k:1", A[:-1], "invalid_secret_hex"),
        ("k1", A + "a1", "invalid_secret_hex"),
        ("k1", "g" * 64, "invalid_secret_hex"),
        ("k1", " " + A[1:], "invalid_secret_hex"),
        ("", A, "invalid_kid"),
        ("k:1", A, "invalid_kid"),
    ],
)
async def test_the_secret_is_looked_at_before_the_name(
    db: Connection, kid: str, secret: str, code: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        await seed_waitpoint_hmac_secret(db, kid, secret)

    assert refused.value.code == code
    assert not secret or secret not in str(refused.value)
    assert await given.everything(db) == []


async def test_of_two_boots_at_once_one_seeds_and_the_other_hears_of_it(
    db: Connection, another: Another
) -> None:
    first, second = await another(), await another()
    async with first.transaction():
        assert await seed_waitpoint_hmac_secret(first, "k1", A) == KeySeeded(kid="k1")
        waiting = await given.blocked(db, second, seed_waitpoint_hmac_secret(second, "k1", A))

    assert await waiting == KeyAlreadySeeded(kid="k1", same_secret=True)


async def test_of_two_boots_with_different_keys_one_is_refused(
    db: Connection, another: Another
) -> None:
    first, second = await another(), await another()
    async with first.transaction():
        await seed_waitpoint_hmac_secret(first, "k1", A)
        waiting = await given.blocked(db, second, seed_waitpoint_hmac_secret(second, "k2", B))

    with pytest.raises(ValidationError, match="rotate"):
        await waiting
    assert await active_key(db) == Key("k1", bytes.fromhex(A))
