"""Grants that nobody issued: altered, signed with another secret, stored without a signature."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import (
    ClaimGrant,
    GrantKey,
    ReclaimGrant,
    claim_grant,
    grant_id,
    reclaim_grant,
    signed,
)
from flowfabric.engine.keys.key import Key
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import GrantKind
from tests.proofs.grant_keys.book import Issued

MALFORMED, UNKNOWN = "grant_malformed", "grant_unknown"
UNKNOWN_KID, MISMATCH = "grant_unknown_kid", "grant_signature_mismatch"
MALLORY: Final = {"worker_id": "mallory", "worker_instance_id": "mallory-1"}


class Forged(msgspec.Struct, frozen=True):
    """A grant that must be refused, and the code of the refusal."""

    way: str
    grant: ClaimGrant | ReclaimGrant
    code: str
    has_row: bool = False


Alter: TypeAlias = Callable[[GrantKey, random.Random, str], dict[str, Any]]
"""The parts of the key that are altered; the text is the id of another key that verifies."""


def _other_execution(key: GrantKey) -> ExecutionId:
    return ExecutionId(key.execution_id.partition_key, ExecutionId.mint().uuid)


def _flipped(signature: str, chance: random.Random) -> str:
    return f"{int(signature, 16) ^ 1 << chance.randrange(256):064x}"


def _foreign(key: GrantKey, chance: random.Random) -> str:
    """The signature of a key that has the same id, in another database."""
    return signed(
        Key(key.kid, chance.randbytes(32)),
        key.kind,
        key.execution_id,
        worker_id="w",
        worker_instance_id="w-1",
        expires_at_ms=key.expires_at_ms,
    ).signature


ALTERATIONS: Final[dict[str, Alter]] = {
    "a bit of the signature": lambda key, chance, _: {"signature": _flipped(key.signature, chance)},
    "a signature of nobody": lambda key, chance, _: {"signature": chance.randbytes(32).hex()},
    "a foreign signature": lambda key, chance, _: {"signature": _foreign(key, chance)},
    "another key": lambda key, chance, kid: {"kid": kid},
    "a later end": lambda key, chance, _: {
        "expires_at_ms": key.expires_at_ms + chance.randint(1, 10**9)
    },
    "another execution": lambda key, chance, _: {"execution_id": _other_execution(key)},
    "another kind": lambda key, chance, _: {"kind": GrantKind.RECLAIM},
}
"""Each leaves a key that can be read, whose fields fit: only what is stored can refuse it."""

MISSHAPEN: Final[dict[str, Callable[[str], str]]] = {
    "empty": lambda text: "",
    "cut short": lambda text: text[:-1],
    "longer": lambda text: text + "0",
    "a line more": lambda text: text + "\n",
    "upper case": lambda text: text[:-64] + text[-64:].upper(),
    "other digits": lambda text: text[:-1] + "\N{FULLWIDTH DIGIT ONE}",
    "a zero in front": lambda text: text.replace("{fp:", "{fp:0", 1),
    "no signature": lambda text: text[:-65],
}


def misshapen(issued: Issued) -> list[Forged]:
    """Texts that are no keys, and keys that name something else than their fields."""
    grant, replace = issued.grant, msgspec.structs.replace
    texts = [
        Forged(way, replace(grant, grant_key=alter(issued.key.text)), MALFORMED)
        for way, alter in MISSHAPEN.items()
    ]
    later = instant(issued.key.expires_at_ms + 1)
    posing = reclaim_grant(issued.key, lane_id="default")
    return [
        *texts,
        Forged("fields: a later end", replace(grant, expires_at=later), MALFORMED),
        Forged(
            "fields: another execution",
            replace(grant, execution_id=_other_execution(issued.key)),
            MALFORMED,
        ),
        Forged("fields: another kind", posing, MALFORMED),
    ]


def altered(issued: Issued, chance: random.Random, other_kid: str) -> list[Forged]:
    """The grant with each part of its key altered; none of these is stored."""
    forged = [
        Forged(way, _grant(_altered(issued, alter, chance, other_kid)), UNKNOWN)
        for way, alter in ALTERATIONS.items()
    ]
    nobodys = msgspec.structs.replace(issued.key, kid=f"k{chance.getrandbits(64)}")
    return [*forged, Forged("a key of nobody", _grant(nobodys), UNKNOWN_KID)]


STORE: Final = """
INSERT INTO ff.claim_grant
SELECT (jsonb_populate_record(g, $3::jsonb)).* FROM ff.claim_grant g
 WHERE (g.partition_key, g.grant_id) = ($1, $2)
"""
REMOVE: Final = "DELETE FROM ff.claim_grant WHERE grant_id = ANY ($1::bytea[])"


async def stored(
    db: Connection, issued: Issued, chance: random.Random, other_kid: str
) -> list[Forged]:
    """The same, each with a row that says the same: written by somebody who cannot sign."""
    home, original = issued.key.execution_id.partition_key, grant_id(issued.key.text)
    forged: list[Forged] = []
    for way, alter in ALTERATIONS.items():
        key = _altered(issued, alter, chance, other_kid)
        row = {
            "grant_id": rf"\x{grant_id(key.text).hex()}",
            "execution_id": str(key.execution_id.uuid),
            "kind": key.kind.value,
            "expires_at_ms": key.expires_at_ms,
            **(MALLORY if way == "a foreign signature" else {}),
        }
        await db.execute(STORE, home, original, msgspec.json.encode(row).decode())
        forged.append(Forged(f"stored: {way}", _grant(key), MISMATCH, has_row=True))
    return forged


async def removed(db: Connection, forged: Sequence[Forged]) -> None:
    """The rows that were stored for these are gone."""
    rows = [grant_id(each.grant.grant_key) for each in forged if each.has_row]
    await db.execute(REMOVE, rows)


TAMPERINGS: Final = (
    "worker_id = 'mallory'",
    "worker_instance_id = 'mallory-1'",
    "kind = 'reclaim'",
    "execution_id = '550e8400-e29b-41d4-a716-446655440000'",
)


async def tampered(db: Connection, issued: Issued, chance: random.Random) -> None:
    """The stored row of the grant says something else than what was signed."""
    await db.execute(
        f"UPDATE ff.claim_grant SET {chance.choice(TAMPERINGS)}"
        " WHERE (partition_key, grant_id) = ($1, $2)",
        issued.key.execution_id.partition_key,
        grant_id(issued.key.text),
    )


def _altered(issued: Issued, alter: Alter, chance: random.Random, other_kid: str) -> GrantKey:
    return msgspec.structs.replace(issued.key, **alter(issued.key, chance, other_kid))


def _grant(key: GrantKey) -> ClaimGrant | ReclaimGrant:
    if key.kind is GrantKind.RECLAIM:
        return reclaim_grant(key, lane_id="default")
    return claim_grant(key)
