"""A signing key: what it signs, who finds it, and that nobody sees it."""

import io

import pytest
from rich.console import Console
from rich.pretty import pprint

from flowfabric.db.rows import Connection
from flowfabric.engine.keys.key import (
    Key,
    KnownKey,
    active_key,
    check_kid,
    check_secret,
    known_key,
    verifying_key,
)
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import seed_waitpoint_hmac_secret
from flowfabric.errors import ValidationError
from flowfabric.testing import Clock
from tests.all_cases import all_cases
from tests.engine.keys.test_rotate_waitpoint_hmac_secret_all import rotate

A, B = "a1" * 32, "b2" * 32


def test_a_key_signs_as_in_the_vector() -> None:
    message = "{fp:7}|550e8400-e29b-41d4-a716-446655440000|w|w-1|1700000000000"

    assert (
        Key("k1", b"topsecret").sign(message)
        == "b48739ae3eb76e02b87c349f4c055d7c544d7bfd4710f68a870830a835f4223b"
    )


def test_the_name_is_part_of_what_is_signed() -> None:
    assert Key("k1", b"same").sign("text") != Key("k2", b"same").sign("text")


def test_a_key_that_is_shown_keeps_its_secret() -> None:
    key, paper = Key("k1", b"topsecret"), io.StringIO()
    pprint(key, console=Console(file=paper))

    for shown in (repr(key), str(key), f"{key}", repr([key]), paper.getvalue()):
        assert "k1" in shown
        assert "REDACTED" in shown
        assert "topsecret" not in shown


async def test_an_empty_store_has_no_keys(db: Connection) -> None:
    assert await active_key(db) is None
    assert await verifying_key(db, "k1") is None


async def test_the_active_key_signs_and_verifies(db: Connection) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)

    assert await active_key(db) == Key("k1", bytes.fromhex(A))
    assert await verifying_key(db, "k1") == Key("k1", bytes.fromhex(A))
    assert await verifying_key(db, "k2") is None


async def test_a_retired_key_verifies_to_the_last_millisecond_of_its_grace(
    db: Connection, clock: Clock
) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    await rotate(db, "k2", B, grace=1)

    assert await active_key(db) == Key("k2", bytes.fromhex(B))
    assert await verifying_key(db, "k1") == Key("k1", bytes.fromhex(A))
    await clock.advance(1)
    assert await verifying_key(db, "k1") == Key("k1", bytes.fromhex(A))
    await clock.advance(0.001)
    assert await verifying_key(db, "k1") is None


async def test_a_key_is_known_also_when_its_grace_is_over(db: Connection, clock: Clock) -> None:
    await seed_waitpoint_hmac_secret(db, "k1", A)
    await rotate(db, "k2", B, grace=1)
    old, new = Key("k1", bytes.fromhex(A)), Key("k2", bytes.fromhex(B))

    assert await known_key(db, "k1") == KnownKey(key=old, verifies=True)
    await clock.advance(1.001)
    assert await known_key(db, "k1") == KnownKey(key=old, verifies=False)
    assert await known_key(db, "k2") == KnownKey(key=new, verifies=True)
    assert await known_key(db, "k9") is None
    assert A not in repr(await known_key(db, "k1"))


@all_cases("kid", ["", ":", "k:1", "k\n", "k\x00", "k\ud800", "ä" * 129])
def test_a_name_that_no_signed_text_can_carry_is_refused_unseen(kid: str) -> None:
    with pytest.raises(ValidationError) as refused:
        check_kid(kid)

    assert refused.value.code == "invalid_kid"


def test_a_secret_given_as_part_of_the_name_is_not_shown() -> None:
    with pytest.raises(ValidationError) as refused:
        check_kid(f"k1:{A}")

    assert A not in str(refused.value)


@pytest.mark.parametrize("kid", ["k1", "2026-07", "ä" * 128, "pipe|and space"])
def test_any_other_name_will_do(kid: str) -> None:
    assert check_kid(kid) == kid


@all_cases(
    ("secret", "digits"), [("", None), ("abc", None), ("xy", None), (" ab", None), ("ab", 64)]
)
def test_a_secret_that_is_not_hex_is_refused_unseen(secret: str, digits: int | None) -> None:
    with pytest.raises(ValidationError) as refused:
        check_secret(secret, digits=digits)

    assert refused.value.code == "invalid_secret_hex"
    assert not secret or repr(secret) not in str(refused.value)


def test_a_secret_may_be_written_in_either_case() -> None:
    assert check_secret("Ab") == check_secret("aB") == b"\xab"
