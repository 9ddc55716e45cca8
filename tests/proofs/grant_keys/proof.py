"""S4: a grant is valid exactly as long as the key that signed it, and no other grant is.

Keys are rotated by several connections while others issue grants and verify them. The clock of the
database stands still, and moves from the last millisecond of a grace to the next. At each instant
it is known from the rotations alone what must be accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.grants.grant import ClaimGrant, GrantKey, ReclaimGrant
from flowfabric.engine.grants.issue_claim_grant import issue_claim_grant
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import (
    KeyRotated,
    rotate_waitpoint_hmac_secret_all,
)
from flowfabric.errors import InvalidGrant
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.grant_keys.book import ACCEPTED, Book, Issued, Keyring, sample
from tests.proofs.grant_keys.forgeries import (
    UNKNOWN,
    Forged,
    altered,
    misshapen,
    removed,
    stored,
    tampered,
)
from tests.proofs.proof import Proof
from tests.worker.facts import eventually

FIRST: Final = "k0"
GRACES: Final = (0.0, 0.001, 0.002, 0.25, 3.0, 20.0)
LIVES: Final = (5.0, 30.0, 60.0)
ROLLED_BACK: Final = 0.1
LATE: Final = 0.01
UNDONE: Final = 3
"""One rotation in so many is rolled back."""
WITHIN: Final = 60.0
LAST, LATER, ELSE = (
    "at the last millisecond of its grace",
    "one millisecond later",
    "at other times",
)


class Size(msgspec.Struct, frozen=True):
    """How many do it, how often, and how many forgeries there are at least."""

    rounds: int
    issuers: int
    verifiers: int
    each: int
    """Grants of a key that are verified again and again."""
    forgeries: int
    at_once: int
    """Grants that are forged at one instant; twice as many are verified as they are."""


QUICK: Final = Size(rounds=6, issuers=3, verifiers=3, each=4, forgeries=300, at_once=4)
FULL: Final = Size(rounds=60, issuers=6, verifiers=6, each=12, forgeries=100_000, at_once=40)


class Tally(msgspec.Struct):
    """What was answered, beside what should have been."""

    right: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Grants that were issued, by the moment."""
    wrong: Counter[str] = msgspec.field(default_factory=Counter[str])
    """The same, with what was expected and what was answered."""
    forged: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Forgeries, by the way they were made."""
    let_in: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Forgeries that were accepted."""
    misnamed: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Forgeries that were refused for another reason, or with their signature in the message."""
    rotations: int = 0
    undone: int = 0

    @property
    def forgeries(self) -> int:
        return sum(self.forged.values())


class Verifier:
    """Asks on connections of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def answer(self, grant: ClaimGrant | ReclaimGrant) -> str:
        """`accepted`, or the code of the refusal."""
        try:
            await self._engine.verify_grant(grant)
        except InvalidGrant as refused:
            shown = grant.grant_key[-64:] in str(refused) and grant.grant_key
            return "the signature is shown" if shown else refused.code
        return ACCEPTED


class Scene:
    """The database, the clock, those who verify and what should be so."""

    def __init__(self, db: Connection, clock: Clock, chance: random.Random, size: Size) -> None:
        self._db, self._clock, self._chance, self._size = db, clock, chance, size
        self.ring, self.tally = Keyring(FIRST), Tally()
        self.book = Book(self.ring, each=size.each)
        self.verifiers: list[Verifier] = []
        self.rotators: list[Connection] = []
        self.rolled_back: list[Issued] = []
        self._kids = 0

    async def issue(self, conn: Connection, chance: random.Random) -> None:
        """Issue grants for ever, each in a transaction that commits late or not at all."""
        while True:
            execution_id = await given.created(conn)
            transaction = conn.transaction()
            await transaction.start()
            terms: dict[str, Any] = granted.TERMS | {"grant_ttl": chance.choice(LIVES)}
            grant = await issue_claim_grant(conn, execution_id, **terms)
            assert isinstance(grant, ClaimGrant)
            await asyncio.sleep(chance.uniform(0, LATE))
            if chance.random() < ROLLED_BACK:
                await transaction.rollback()
                self.rolled_back.append(Issued(grant, GrantKey.parse(grant.grant_key)))
            else:
                await transaction.commit()
                self.book.add(grant)
            if self.book.is_full:
                await asyncio.sleep(LATE)

    async def play_round(self) -> None:
        """Rotations, then every end of a grace until the clock is where chance puts it."""
        await eventually(lambda: self.book.is_full, within=WITHIN)
        now_ms = await self._clock.now_ms()
        await self._instant(now_ms, graces=self._chance.choices(GRACES, k=2))
        upto = now_ms + self._chance.randint(1, 6_000)
        while (end := self.ring.next_end()) is not None and end <= upto:
            graces = self._chance.choices(GRACES[1:], k=self._chance.choice((0, 0, 1)))
            await self._instant(await self._move_to(end), graces=graces)
            await self._instant(await self._move_to(end + 1))
            self.ring.passed(end)
        now_ms = await self._move_to(max(upto, await self._clock.now_ms()))
        await self._use_up(now_ms)
        await self._instant(now_ms)
        self.book.drop(now_ms)

    async def _move_to(self, now_ms: int) -> int:
        await self._clock.advance((now_ms - await self._clock.now_ms()) / 1000)
        assert await self._clock.now_ms() == now_ms
        return now_ms

    async def _rotate(self, conn: Connection, grace: float) -> None:
        """Another key signs, unless the rotation is undone."""
        self._kids = number = self._kids + 1
        kid, secret = f"k{number}", self._chance.randbytes(32).hex()
        now_ms = await Clock(conn).now_ms()
        transaction = conn.transaction()
        await transaction.start()
        [answer] = await rotate_waitpoint_hmac_secret_all(conn, kid, secret, grace)
        await asyncio.sleep(self._chance.uniform(0, LATE))
        if number % UNDONE == 0:
            await transaction.rollback()
            self.tally.undone += 1
            return
        assert isinstance(answer.result, KeyRotated)
        end_ms = now_ms + round(grace * 1000)
        self.ring.rotated(answer.result.previous_kid, kid, end_ms=end_ms)
        self.tally.rotations += 1
        await transaction.commit()

    async def _instant(self, now_ms: int, *, graces: Sequence[float] = ()) -> None:
        """Verify while the clock stands at `now_ms` and keys are rotated.

        Of every key whose grace ends now, or has just ended, all grants are verified.
        """
        moments = {each.key.text: self._moment(each, now_ms) for each in self.book.all()}
        edge = [each for each in self.book.all() if moments[each.key.text] != ELSE]
        rest = [each for each in self.book.all() if moments[each.key.text] == ELSE]
        asked = [
            (each, self.book.expected(each, now_ms), moments[each.key.text])
            for each in edge + sample(self._chance, rest, 2 * self._size.at_once)
        ]
        forged = [*self._rolled_back(now_ms), *await self._forge(now_ms)]
        shares = len(self.verifiers)
        await asyncio.gather(
            *[self._rotate(*each) for each in zip(self.rotators, graces, strict=False)],
            *[
                self._verify(verifier, asked[number::shares], forged[number::shares])
                for number, verifier in enumerate(self.verifiers)
            ],
        )
        await removed(self._db, forged)

    def _moment(self, issued: Issued, now_ms: int) -> str:
        if self.book.expected(issued, now_ms) not in (ACCEPTED, "grant_unknown_kid"):
            return ELSE
        since = self.ring.since_end(issued.key.kid, now_ms)
        return LAST if since == 0 else LATER if since == 1 else ELSE

    async def _verify(
        self,
        verifier: Verifier,
        grants: Sequence[tuple[Issued, str, str]],
        forged: Sequence[Forged],
    ) -> None:
        for issued, expected, moment in grants:
            answer = await verifier.answer(issued.grant)
            if answer == expected:
                self.tally.right[moment] += 1
            else:
                self.tally.wrong[f"{moment}: {answer}, not {expected}"] += 1
        for each in forged:
            answer = await verifier.answer(each.grant)
            self.tally.forged[each.way] += 1
            if answer == ACCEPTED:
                self.tally.let_in[each.way] += 1
            elif answer != each.code:
                self.tally.misnamed[f"{each.way}: {answer}, not {each.code}"] += 1

    async def _forge(self, now_ms: int) -> list[Forged]:
        """Forgeries of grants that would be accepted as they are, each forged in one manner."""
        forged: list[Forged] = []
        kids = {kid for kid in self.ring.kids if self.ring.verifies(kid, now_ms)}
        among = sample(self._chance, self.book.valid(now_ms), self._size.at_once)
        for number, issued in enumerate(among):
            others = sorted(kids - {issued.key.kid})
            if not others or number % 3 == 0:
                forged += misshapen(issued)
            elif number % 3 == 1:
                forged += altered(issued, self._chance, self._chance.choice(others))
            else:
                other = self._chance.choice(others)
                forged += await stored(self._db, issued, self._chance, other)
        return forged

    def _rolled_back(self, now_ms: int) -> list[Forged]:
        """Grants whose transaction was undone; each is tried once."""
        undone, self.rolled_back = self.rolled_back, []
        return [
            Forged("rolled back", each.grant, UNKNOWN)
            for each in undone
            if self.book.expected(each, now_ms) == ACCEPTED
        ]

    async def _use_up(self, now_ms: int) -> None:
        """Some grants are used, and of some the stored row is changed."""
        for issued in sample(self._chance, self.book.valid(now_ms), 2):
            if self._chance.random() < 0.5:
                await granted.claim_it(self._db, issued.key.execution_id)
                self.book.use_up(issued)
            else:
                await tampered(self._db, issued, self._chance)
                self.book.spoil(issued)


async def _run(dsn: str, arena: Arena, size: Size) -> list[Figure]:
    async with contextlib.AsyncExitStack() as stack:

        async def opened(role: str) -> Connection:
            conn = await connect(DatabaseConfig(dsn=dsn), role=role)
            stack.push_async_callback(conn.close)
            return conn

        db = await opened("tests")
        scene = Scene(db, await Clock.install(db), arena.chance("grant_keys"), size)
        await granted.keyed(db, FIRST)
        scene.rotators = [await opened("rotator") for _ in range(2)]
        for number in range(size.verifiers):
            config = DatabaseConfig(dsn=dsn, pool_size=1, listen=False)
            engine = await Engine.connect(config, role=f"verifier {number}")
            stack.push_async_callback(engine.close)
            scene.verifiers.append(Verifier(engine))
        issuing = [
            asyncio.create_task(scene.issue(await opened("issuer"), arena.chance(f"{number}")))
            for number in range(size.issuers)
        ]
        try:
            rounds = 0
            while rounds < size.rounds or scene.tally.forgeries < size.forgeries:
                await scene.play_round()
                rounds += 1
                if rounds % 20 == 0:
                    arena.say(f"{rounds} rounds, {scene.tally.forgeries:,} forgeries")
        finally:
            for task in issuing:
                task.cancel()
            ended = await asyncio.gather(*issuing, return_exceptions=True)
        for each in ended:
            if not isinstance(each, asyncio.CancelledError):
                raise each or AssertionError("an issuer ended")
        return _figures(scene, size)


def _figures(scene: Scene, size: Size) -> list[Figure]:
    tally = scene.tally
    who = f"{size.issuers} issuers, {size.verifiers} verifiers, {tally.rotations} rotations"
    return [
        *[_moment_figure(tally, moment, who) for moment in (LAST, LATER, ELSE)],
        Figure(
            "S4",
            f"forged, foreign, altered and undone grants, {len(tally.forged)} ways: accepted",
            f"{sum(tally.let_in.values())} of {tally.forgeries:,}{_most(tally.let_in)}",
            "0",
            held=not tally.let_in and tally.forgeries > 0,
        ),
        Figure(
            "S4",
            "the same: refused for another reason than theirs, or shown with their signature",
            f"{sum(tally.misnamed.values())}{_most(tally.misnamed)}",
            "0",
            held=not tally.misnamed,
        ),
        Figure(
            "",
            "grants issued; rotations undone; forgeries",
            f"{scene.book.issued:,}; {tally.undone}; {tally.forgeries:,}",
            f"> 0; > 0; {size.forgeries:,}",
            held=tally.undone > 0 and tally.forgeries >= size.forgeries,
        ),
    ]


def _moment_figure(tally: Tally, moment: str, who: str) -> Figure:
    right = tally.right[moment]
    wrong = Counter(
        {what: number for what, number in tally.wrong.items() if what.startswith(moment)}
    )
    should = {LAST: "accepted", LATER: "refused"}.get(moment, "answered as the rotations say")
    total = right + sum(wrong.values())
    return Figure(
        "S4",
        f"{who}: grants of a retired key {moment}: {should}"
        if moment != ELSE
        else f"the same, grants {moment}: {should}",
        f"{right:,} of {total:,}{_most(wrong)}",
        "all",
        held=not wrong and right > 0,
    )


def _most(found: Counter[str]) -> str:
    return "".join(f", {number} x {what}" for what, number in found.most_common(3))


def _prove(arena: Arena, size: Size) -> list[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_run(dsn, arena, size))


GRANT_KEYS: Final = Proof(
    "grant_keys",
    quick=lambda arena: _prove(arena, QUICK),
    full=lambda arena: _prove(arena, FULL),
    claims=("S4",),
)
