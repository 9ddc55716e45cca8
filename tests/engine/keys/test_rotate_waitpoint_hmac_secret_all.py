"""Another key signs from now on."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.keys.key import Key, active_key, verifying_key
from flowfabric.engine.keys.list_waitpoint_hmac_kids import list_waitpoint_hmac_kids
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import (
    KeyRotated,
    KeyUnchanged,
    PartitionRotation,
    rotate_waitpoint_hmac_secret_all,
)
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.errors import RotationConflict, ValidationError
from flowfabric.policy import MAX_GRACE_MS
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]
A, B, C, D = "a1" * 32, "b2" * 32, "c3" * 32, "d4" * 32
DAY = timedelta(days=1)


async def rotate(
    db: Connection, kid: str, secret: str, *, grace: float | timedelta = DAY
) -> list[PartitionRotation]:
    """A rotation in a transaction of its own."""
    async with db.transaction():
        return await rotate_waitpoint_hmac_secret_all(db, kid, secret, grace)


def rotated(previous: str | None, new: str, gone: int = 0) -> list[PartitionRotation]:
    result = KeyRotated(previous_kid=previous, new_kid=new, gc_count=gone)
    return [PartitionRotation(partition=0, result=result)]


async def test_the_new_key_signs_and_the_old_one_verifies_for_its_grace(
    db: Connection, clock: Clock
) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    seeded_at = await clock.now_ms()
    await clock.advance(5)

    assert await rotate(db, "k2", B, grace=1) == rotated("k1", "k2")

    now = await clock.now_ms()
    assert [dict(row) for row in await db.fetch("SELECT * FROM ff.waitpoint_hmac ORDER BY 1")] == [
        {
            "kid": "k1",
            "secret": bytes.fromhex(A),
            "rotated_at_ms": seeded_at,
            "active": False,
            "expires_at_ms": now + 1000,
        },
        {
            "kid": "k2",
            "secret": bytes.fromhex(B),
            "rotated_at_ms": now,
            "active": True,
            "expires_at_ms": None,
        },
    ]


async def test_an_empty_store_can_be_rotated_into(db: Connection) -> None:
    assert await rotate(db, "k1", "0a") == rotated(None, "k1")

    assert await active_key(db) == Key("k1", b"\n")


async def test_rotating_twice_within_the_grace_keeps_the_first_valid(
    db: Connection, clock: Clock
) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    await rotate(db, "k2", B, grace=10)
    await clock.advance(9)
    assert await rotate(db, "k3", C, grace=10) == rotated("k2", "k3")

    assert [await verifying_key(db, kid) is not None for kid in ("k1", "k2", "k3")] == [True] * 3
    await clock.advance(1.001)
    assert [await verifying_key(db, kid) is not None for kid in ("k1", "k2", "k3")] == [
        False,
        True,
        True,
    ]


async def test_keys_whose_grace_is_over_are_removed_and_counted(
    db: Connection, clock: Clock
) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    await rotate(db, "k2", B, grace=1)
    await clock.advance(1)
    assert await rotate(db, "k3", C, grace=0) == rotated("k2", "k3")
    await clock.advance(0.001)

    assert await rotate(db, "k4", D) == rotated("k3", "k4", gone=2)

    rows = await db.fetch("SELECT kid FROM ff.waitpoint_hmac ORDER BY kid")
    assert [row["kid"] for row in rows] == ["k3", "k4"]


async def test_without_grace_the_old_key_verifies_in_this_millisecond_only(
    db: Connection, clock: Clock
) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    await rotate(db, "k2", B, grace=0)

    assert await verifying_key(db, "k1") is not None
    await clock.advance(0.001)
    assert await verifying_key(db, "k1") is None


async def test_the_longest_grace_can_be_listed(db: Connection) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)

    await rotate(db, "k2", B, grace=timedelta(milliseconds=MAX_GRACE_MS))

    [old] = (await list_waitpoint_hmac_kids(db)).verifying
    assert (old.kid, old.expires_at.year) == ("k1", 9999)


async def test_the_key_that_signs_may_be_given_again(db: Connection, clock: Clock) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    await rotate(db, "k2", B, grace=0)
    await clock.advance(5)
    before = await given.everything(db)

    answer = await rotate(db, "k2", B.upper(), grace=0)

    assert answer == [PartitionRotation(partition=0, result=KeyUnchanged(kid="k2"))]
    assert await given.everything(db) == before


@pytest.mark.parametrize(
    ("kid", "secret", "why"),
    [
        ("k2", C, "another secret"),
        ("k1", B, "another secret"),
        ("k1", A, "retired"),
    ],
    ids=["another secret", "another secret of a retired one", "retired"],
)
@pytest.mark.parametrize("later", [0, 5], ids=["within its grace", "past its grace"])
async def test_a_name_that_is_taken_otherwise_is_a_conflict(
    db: Connection, clock: Clock, kid: str, secret: str, why: str, later: int
) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    await rotate(db, "k2", B, grace=1)
    await clock.advance(later)
    before = await given.everything(db)

    with pytest.raises(RotationConflict, match=why) as refused:
        await rotate(db, kid, secret)

    assert refused.value.kid == kid
    assert secret not in str(refused.value)
    assert await given.everything(db) == before


@pytest.mark.parametrize(
    ("kid", "secret", "grace", "code"),
    [
        ("", "", -1, "invalid_kid"),
        ("k:1", "x", -1, "invalid_kid"),
        ("k1", "", -1, "invalid_secret_hex"),
        ("k1", "abc", -1, "invalid_secret_hex"),
        ("k1", "zz", -1, "invalid_secret_hex"),
        ("k1", A, -1, "invalid_grace_ms"),
        ("k1", A, 2**53, "invalid_grace_ms"),
        ("k1", A, float("nan"), "invalid_grace_ms"),
        ("k1", A, True, "invalid_grace_ms"),
        ("k1", A, "1", "invalid_grace_ms"),
    ],
)
async def test_name_then_secret_then_grace_must_make_sense(
    db: Connection, kid: str, secret: str, grace: Any, code: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        await rotate(db, kid, secret, grace=grace)

    assert refused.value.code == code
    assert len(secret) < 4 or secret not in str(refused.value)
    assert await given.everything(db) == []


async def test_two_rotations_at_once_follow_one_another(db: Connection, another: Another) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    first, second = await another(), await another()
    async with first.transaction():
        answers = [await rotate_waitpoint_hmac_secret_all(first, "k2", B, DAY)]
        waiting = await given.blocked(db, second, rotate(second, "k3", C))
        assert await active_key(db) == Key("k1", bytes.fromhex(A))
    answers.append(await waiting)

    assert answers == [rotated("k1", "k2"), rotated("k2", "k3")]
    rows = await db.fetch("SELECT kid FROM ff.waitpoint_hmac WHERE active")
    assert [row["kid"] for row in rows] == ["k3"]
    assert [await verifying_key(db, kid) is not None for kid in ("k1", "k2")] == [True, True]


async def test_the_same_rotation_twice_at_once_happens_once(
    db: Connection, another: Another
) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    first, second = await another(), await another()
    async with first.transaction():
        await rotate_waitpoint_hmac_secret_all(first, "k2", B, DAY)
        waiting = await given.blocked(db, second, rotate(second, "k2", B))

    assert await waiting == [PartitionRotation(partition=0, result=KeyUnchanged(kid="k2"))]


async def test_a_rotation_that_is_undone_leaves_the_old_key(
    db: Connection, another: Another
) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    first, second = await another(), await another()
    undone = first.transaction()
    await undone.start()
    await rotate_waitpoint_hmac_secret_all(first, "k2", B, DAY)
    waiting = await given.blocked(db, second, rotate(second, "k3", C))
    await undone.rollback()

    assert await waiting == rotated("k1", "k3")
