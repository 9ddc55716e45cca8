"""Grants: how they are written, signed, read and shown."""

import hashlib
import io
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from rich.console import Console
from rich.pretty import pprint

from flowfabric.engine.grants.grant import (
    ClaimGrant,
    GrantKey,
    ReclaimGrant,
    claim_grant,
    grant_id,
    grant_message,
    reclaim_grant,
    signed,
)
from flowfabric.engine.keys.key import Key
from flowfabric.errors import InvalidGrant
from flowfabric.ids import ExecutionId
from flowfabric.states import GrantKind
from tests.all_cases import all_cases

EXECUTION = ExecutionId.parse("{fp:7}:550e8400-e29b-41d4-a716-446655440000")
KEY = Key("k1", b"topsecret")
HEX = "b48739ae3eb76e02b87c349f4c055d7c544d7bfd4710f68a870830a835f4223b"
TEXT = f"pg:{{fp:7}}:550e8400-e29b-41d4-a716-446655440000:1700000000000:k1:{HEX}"


def made(kind: GrantKind) -> GrantKey:
    return signed(
        KEY,
        kind,
        EXECUTION,
        worker_id="w",
        worker_instance_id="w-1",
        expires_at_ms=1_700_000_000_000,
    )


def test_a_claim_grant_is_signed_and_written_as_in_the_vector() -> None:
    key = made(GrantKind.CLAIM)

    assert key.signature == HEX
    assert key.text == TEXT
    assert grant_id(TEXT) == hashlib.sha256(TEXT.encode()).digest()


def test_a_reclaim_grant_signs_that_it_is_one() -> None:
    message = grant_message(
        GrantKind.RECLAIM,
        EXECUTION,
        worker_id="w",
        worker_instance_id="w-1",
        expires_at_ms=1_700_000_000_000,
    )
    key = made(GrantKind.RECLAIM)

    assert message == ("{fp:7}|550e8400-e29b-41d4-a716-446655440000|w|w-1|1700000000000|reclaim")
    assert key.signature == KEY.sign(message)
    assert key.text == (
        "pg:reclaim:{fp:7}:550e8400-e29b-41d4-a716-446655440000:1700000000000:k1:" + key.signature
    )


def test_a_grant_says_what_its_key_says() -> None:
    fields = {
        "execution_id": EXECUTION,
        "partition_key": "{fp:7}",
        "expires_at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    }
    claim, reclaim = made(GrantKind.CLAIM), made(GrantKind.RECLAIM)

    assert claim_grant(claim) == ClaimGrant(grant_key=claim.text, **fields)
    assert reclaim_grant(reclaim, lane_id="gpu") == ReclaimGrant(
        grant_key=reclaim.text, lane_id="gpu", **fields
    )


@examples(
    st.builds(
        GrantKey,
        kind=st.sampled_from(GrantKind),
        execution_id=st.builds(ExecutionId, st.integers(0, 2**15 - 1), st.uuids()),
        expires_at_ms=st.integers(0, 10**18 - 1),
        kid=st.text(st.characters(codec="utf-8"), min_size=1, max_size=64).filter(
            lambda kid: kid.isprintable() and ":" not in kid
        ),
        signature=st.binary(min_size=32, max_size=32).map(bytes.hex),
    )
)
def test_a_key_reads_back_as_it_was_written(key: GrantKey) -> None:
    assert GrantKey.parse(key.text) == key


@all_cases(
    ("old", "new"),
    [
        (TEXT, ""),
        (TEXT, "pg"),
        ("pg:", "pq:"),
        ("pg:", "PG:"),
        ("pg:", " pg:"),
        ("pg:", "pg:claim:"),
        ("{fp:7}", "{fp:x}"),
        ("{fp:7}", "{b:7}"),
        ("{fp:7}", "{fp:07}"),
        ("{fp:7}", "{fp:32768}"),
        ("{fp:7}", "fp:7"),
        ("550e8400-", "550e84000"),
        ("550e8400-e29b", "550E8400-E29B"),
        ("550e8400", "x50e8400"),
        (":1700000000000", ":01700000000000"),
        (":1700000000000", ":-1"),
        (":1700000000000", ":1.5"),
        (":1700000000000", ":" + "1" * 19),
        (":k1:", ":"),
        (":k1:", "::"),
        (":k1:", ":k1:k2:"),
        (":k1:", ":k\n:"),
        (":k1:", ":k\x00:"),
        (":k1:", ":k\ud800:"),
        (HEX, HEX[:-1]),
        (HEX, HEX + "a"),
        (HEX, HEX.upper()),
        (HEX, HEX + "\n"),
    ],
)
def test_anything_else_is_malformed_and_not_shown(old: str, new: str) -> None:
    assert TEXT.count(old) == 1

    with pytest.raises(InvalidGrant) as refused:
        GrantKey.parse(TEXT.replace(old, new))

    assert refused.value.code == "grant_malformed"
    assert HEX[:-1] not in str(refused.value)


@pytest.mark.parametrize(
    "shown",
    [
        made(GrantKind.CLAIM),
        claim_grant(made(GrantKind.CLAIM)),
        reclaim_grant(made(GrantKind.RECLAIM), lane_id="gpu"),
    ],
)
def test_a_grant_that_is_shown_keeps_its_signature(shown: object) -> None:
    paper = io.StringIO()
    pprint(shown, console=Console(file=paper, width=400))

    for text in (repr(shown), str(shown), repr([shown]), paper.getvalue()):
        assert "550e8400-e29b-41d4-a716-446655440000:1700000000000:k1:<REDACTED>" in text
        assert HEX not in text
        assert made(GrantKind.RECLAIM).signature not in text


def test_a_malformed_key_that_is_shown_is_not() -> None:
    grant = ClaimGrant(
        execution_id=ExecutionId(7, UUID(int=1)),
        partition_key="{fp:7}",
        grant_key="whatever",
        expires_at=datetime.fromtimestamp(0, UTC),
    )

    assert "whatever" not in repr(grant)
