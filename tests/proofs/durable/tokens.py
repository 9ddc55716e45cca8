"""S4: nobody signals a waitpoint without its token, nor after the grace of the key that signed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.errors import FlowFabricError, InvalidToken, MissingToken, TokenExpired
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from flowfabric.tokens import sign_token
from tests import given
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof

WORKER: Final = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",))
SECRET: Final = "ab" * 32
GRACE: Final = timedelta(minutes=10)
WIDE: Final = {ord("1"): "\uff11"}
"""Digits that only look like ASCII ones."""
KEPT: Final = "SELECT count(*) FROM ff.signal_event"


class Door(msgspec.Struct, frozen=True):
    """A waitpoint of an execution, and its token."""

    execution_id: ExecutionId
    waitpoint: Waitpoint

    @property
    def token(self) -> str:
        return self.waitpoint.token.reveal()


Forge = Callable[[Door, Door, random.Random], str]


def _bit(door: Door, _other: Door, chance: random.Random) -> str:
    kid, digest = door.token.split(":")
    return f"{kid}:{int(digest, 16) ^ 1 << chance.randrange(256):064x}"


def _foreign(door: Door, _other: Door, chance: random.Random) -> str:
    """By a key of the same id that somebody else has."""
    secret = chance.randbytes(32)
    return sign_token("k1", secret, door.execution_id, door.waitpoint.waitpoint_id).reveal()


def _signed_for_another(door: Door, other: Door, _chance: random.Random) -> str:
    """By our key, for this waitpoint of another execution: not the token that is stored."""
    secret = bytes.fromhex(SECRET)
    return sign_token("k1", secret, other.execution_id, door.waitpoint.waitpoint_id).reveal()


FORGERIES: Final[dict[str, Forge]] = {
    "a bit is flipped": _bit,
    "of another waitpoint": lambda _door, other, _: other.token,
    "of a key of the same id": _foreign,
    "signed for another execution": _signed_for_another,
    "of an unknown key": lambda door, _, chance: f"k{chance.randrange(2, 99)}{door.token[2:]}",
    "cut": lambda door, _, chance: door.token[: chance.randrange(len(door.token))],
    "longer": lambda door, _, chance: door.token + "0123456789abcdef"[chance.randrange(16)],
    "in capitals": lambda door, _, __: f"k1:{door.token[3:].upper()}",
    "with a blank": lambda door, _, __: f"{door.token} ",
    "with other digits": lambda door, _, __: (
        door.token.replace("1", "\N{FULLWIDTH DIGIT ONE}") + "1"
    ),
    "of zeros": lambda _door, _other, _: f"k1:{0:064x}",
    "empty": lambda _door, _other, _: "",
}


class Seen(msgspec.Struct):
    """What became of tokens."""

    forged: int = 0
    accepted: int = 0
    stored: int = 0
    in_grace: int = 0
    refused_in_grace: int = 0
    after_grace: int = 0
    accepted_after: int = 0
    unexpected: tuple[str, ...] = ()


async def _run(dsn: str, chance: random.Random, *, doors: int, forgeries: int) -> Seen:
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=4), role="tests")
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        clock = await Clock.install(db)
        await engine.seed_waitpoint_hmac_secret("k1", SECRET)
        made = await _made(engine, doors)
        seen = Seen()
        for number in range(forgeries):
            way = list(FORGERIES)[number % len(FORGERIES)]
            door, other = chance.sample(made, 2)
            forged = FORGERIES[way](door, other, chance)
            answer = await _delivered(engine, door, forged)
            seen.forged += 1
            seen.accepted += answer is None
            if answer is not None and not isinstance(answer, InvalidToken | MissingToken):
                seen.unexpected += (f"{way}: {type(answer).__name__}",)
        seen.stored = await db.fetchval(KEPT)
        await engine.rotate_waitpoint_hmac_secret_all("k2", "cd" * 32, grace=GRACE)
        await clock.advance(GRACE)
        for door in made:
            answer = await _delivered(engine, door, door.token)
            seen.in_grace += 1
            seen.refused_in_grace += answer is not None
        await clock.advance(0.001)
        for door in made:
            answer = await _delivered(engine, door, door.token)
            seen.after_grace += 1
            seen.accepted_after += not isinstance(answer, TokenExpired)
        return seen
    finally:
        await db.close()
        await engine.close()


async def _made(engine: Engine, doors: int) -> list[Door]:
    await engine.create_execution([given.new() for _ in range(doors)])
    return [
        Door(
            claimed.lease.execution_id,
            await engine.create_waitpoint(claimed.lease, "door", expires_in=3600),
        )
        for claimed in await engine.claim(WORKER, ttl=3600, limit=doors)
    ]


async def _delivered(engine: Engine, door: Door, token: str) -> FlowFabricError | None:
    """None if the signal was accepted, else why it was not."""
    try:
        await engine.deliver_signal(door.execution_id, door.waitpoint.waitpoint_id, token, "open")
    except FlowFabricError as error:
        return error
    return None


def _figures(seen: Seen) -> list[Figure]:
    return [
        Figure(
            "S4",
            f"tokens of waitpoints forged in {len(FORGERIES)} ways: accepted; signals stored",
            f"{seen.accepted} of {seen.forged:,}; {seen.stored}"
            + "".join(f"; {each}" for each in seen.unexpected[:3]),
            "0; 0",
            held=seen.forged > 0 and not (seen.accepted or seen.stored or seen.unexpected),
        ),
        Figure(
            "S4",
            "tokens of a rotated key: accepted in the last ms of its grace; refused one later",
            f"{seen.in_grace - seen.refused_in_grace} of {seen.in_grace};"
            f" {seen.after_grace - seen.accepted_after} of {seen.after_grace}",
            "all; all",
            held=seen.in_grace > 0 and not (seen.refused_in_grace or seen.accepted_after),
        ),
    ]


def run(arena: Arena, *, doors: int, forgeries: int) -> list[Figure]:
    with arena.database() as dsn:
        chance = arena.chance("tokens")
        return _figures(asyncio.run(_run(dsn, chance, doors=doors, forgeries=forgeries)))


TOKENS: Final = Proof(
    "tokens",
    lambda arena: run(arena, doors=20, forgeries=600),
    lambda arena: run(arena, doors=100, forgeries=100_000),
    claims=("S4",),
)
