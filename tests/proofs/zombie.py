"""G3, S5: a worker that lost its lease, or never had it, changes nothing, whatever it calls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.joins.spawn_children import spawn_children
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.journal.restart_execution import restart_execution
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.lifecycle.wait_children import ChildWait, wait_children
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.suspensions.create_waitpoint import create_waitpoint
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.errors import (
    ExecutionNotActive,
    FlowFabricError,
    LeaseExpired,
    NotFound,
    StaleLease,
)
from flowfabric.ids import child_id, children_group_id
from flowfabric.states import JournalKind, JournalState
from tests import given
from tests.engine.lifecycle.fenced import OPERATIONS, Operation
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.fingerprint import changed, fingerprint
from tests.proofs.proof import Proof
from tests.worker.facts import eventually

THEN: Final = datetime(2026, 1, 1, tzinfo=UTC)
ONE_CLAIM: Final = 20
"""Executions that share a lease id, as those of one claim call do."""


async def _refusal(db: Connection, call: Awaitable[Any]) -> Any:
    """What a call that raises its refusal says; the transaction ends as the engine would end it."""
    try:
        async with db.transaction():
            return await call
    except FlowFabricError as error:
        return error


async def _spawn(db: Connection, leases: Sequence[Lease], *, waits: bool) -> list[Any]:
    """A child each, with a wait of its own or without one."""
    answers: list[Any] = []
    for lease in leases:
        parent = lease.execution_id
        child = given.new(execution_id=child_id(parent, 1, int(waits), kind="job"))
        wait = children_group_id(parent, 1) if waits else None
        answers.append(await _refusal(db, spawn_children(db, lease, [child], group=wait)))
    return answers


async def _spawn_waited(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return await _spawn(db, leases, waits=True)


async def _spawn_detached(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return await _spawn(db, leases, waits=False)


async def _wait_children(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    """Every execution has such a wait, and it is open."""
    return await wait_children(
        db,
        [
            ChildWait(lease=lease, groups=(children_group_id(lease.execution_id, 0),))
            for lease in leases
        ],
    )


async def _cancel_execution(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    answers: list[Any] = []
    for lease in leases:
        call = cancel_execution(
            db,
            lease.execution_id,
            reason="mine",
            source="lease_holder",
            lease_epoch=lease.lease_epoch,
            lease_id=lease.lease_id,
        )
        answers.append(await _refusal(db, call))
    return answers


async def _record_entries(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    """An entry each."""
    writes = [
        EntryWrite(
            lease=lease,
            seq=1,
            kind=JournalKind.STEP,
            state=JournalState.DONE,
            name="pay",
            started_at=THEN,
        )
        for lease in leases
    ]
    refused = await record_entries(db, writes)
    return [refused.get(lease) for lease in leases]


def _waiting(lease: Lease) -> SuspendRequest:
    return SuspendRequest(lease=lease, keeps_waitpoints=True, awaits_signals=("go",))


async def _suspend(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    async with db.transaction():
        return await suspend(db, [_waiting(lease) for lease in leases])


async def _create_waitpoint(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return [
        await _refusal(db, create_waitpoint(db, lease, "door", expires_in=60)) for lease in leases
    ]


async def _restart(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return [await _refusal(db, restart_execution(db, lease, payload=b"1")) for lease in leases]


CALLS: Final[dict[str, Operation]] = {
    **OPERATIONS,
    "record_entries": _record_entries,
    "suspend": _suspend,
    "create_waitpoint": _create_waitpoint,
    "restart_execution": _restart,
    "wait_children": _wait_children,
    "spawn_children": _spawn_waited,
    "spawn_children, detached": _spawn_detached,
}
"""Every write that a holder makes with its lease."""

WHILE_HELD: Final[dict[str, Operation]] = {**CALLS, "cancel_execution": _cancel_execution}
"""Outsiders may cancel what nobody holds; as long as somebody does, they must show the lease."""

IN_BATCHES: Final = [CALLS[name] for name in ("renew", "complete", "fail", "delay", "release")]


class Tally:
    """Calls that were made, those that were refused as they should be, and tables that changed."""

    def __init__(self) -> None:
        self.calls = self.refused = 0
        self.changed: set[str] = set()
        self.unexpected: Counter[str] = Counter()

    async def replay(
        self,
        db: Connection,
        calls: dict[str, Operation],
        leases: Sequence[Lease],
        error: type[FlowFabricError],
    ) -> None:
        """Make every call with every lease, and see whether anything was written."""
        async with self.watching(db):
            for name, call in calls.items():
                self.judge(name, await call(db, leases), error)

    @contextlib.asynccontextmanager
    async def watching(self, db: Connection) -> AsyncGenerator[None]:
        """Whatever changes within the block is held against it."""
        before = await fingerprint(db)
        yield
        self.changed |= set(changed(before, await fingerprint(db)))

    def judge(self, name: str, answers: Sequence[Any], error: type[FlowFabricError]) -> None:
        """Every answer must be this very error."""
        wrong = [type(answer).__name__ for answer in answers if type(answer) is not error]
        self.calls += len(answers)
        self.refused += len(answers) - len(wrong)
        self.unexpected.update(f"{name}: {how}" for how in wrong)

    def figures(self, promise: str, what: str) -> list[Figure]:
        wrong = "".join(f", {number} x {how}" for how, number in self.unexpected.most_common(3))
        return [
            Figure(
                promise,
                what,
                f"{self.refused:,} of {self.calls:,} refused{wrong}",
                "all refused",
                held=self.calls == self.refused,
            ),
            Figure(
                promise,
                f"{what}: tables of which a byte changed",
                ", ".join(sorted(self.changed)) or "0",
                "0",
                held=not self.changed,
            ),
        ]


async def _steal(dsn: str, chance: random.Random, *, leases: int, forged: int) -> list[Figure]:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        asleep, stolen = Tally(), Tally()
        await create_execution(db, [given.new() for _ in range(leases)])
        old = await _claimed(db, leases, "sleeper", ttl=600)
        await _with_an_open_wait(db, old)
        await _fall_asleep(db, old)
        await asleep.replay(db, CALLS, old, LeaseExpired)
        if asleep.unexpected:  # then there is nothing left to steal
            return asleep.figures("G3", f"{leases:,} leases that ran out")
        while await expire_leases(db, limit=500):
            pass
        await asleep.replay(db, CALLS, old, ExecutionNotActive)
        current = await _claimed(db, leases, "thief", ttl=600)
        await stolen.replay(db, WHILE_HELD, old, StaleLease)
        guesses = await _forge(db, current, forged, _other_ids(chance, current, old), StaleLease)
        epochs = await _forge(db, current, forged // 2, [_other_epoch(chance)], StaleLease)
        attempts = await _forge(db, current, forged // 2, [_later_attempt(chance)], NotFound)
        await complete(db, [Completion(lease, b"of the thief") for lease in current])
        await asleep.replay(db, CALLS, old, ExecutionNotActive)
        return [
            *stolen.figures("G3", f"{leases:,} stolen leases, {len(WHILE_HELD)} calls each"),
            *asleep.figures("G3", "the same when lapsed, swept, and ended by the thief"),
            *guesses.figures("S5", "handles in which only the lease id is wrong"),
            *epochs.figures("G3", "handles in which only the epoch is wrong"),
            *attempts.figures("G3", "handles in which only the attempt is wrong"),
        ]
    finally:
        await db.close()


async def _claimed(db: Connection, number: int, instance: str, *, ttl: float) -> list[Lease]:
    """All that is claimable, in claims of a few, each with a lease id of its own."""
    claimant = Claimant(worker_id="w", worker_instance_id=instance, lanes=("default",))
    leases: list[Lease] = []
    while claimed := await claim(db, claimant, ttl=ttl, limit=ONE_CLAIM):
        leases += [each.lease for each in claimed]
    assert len(leases) == number, len(leases)
    return leases


async def _with_an_open_wait(db: Connection, leases: Sequence[Lease]) -> None:
    """Each gets a child that nobody runs, and a wait for it."""
    for lease in leases:
        parent = lease.execution_id
        child = given.new(execution_id=child_id(parent, 0, 0, kind="job"), lane_id="nobody")
        async with db.transaction():
            await spawn_children(db, lease, [child], group=children_group_id(parent, 0))


async def _fall_asleep(db: Connection, leases: Sequence[Lease]) -> None:
    """The holders renew for a moment, and then no more."""
    await renew(db, leases, ttl=0.05)

    async def lapsed() -> bool:
        return not await db.fetchval(
            "SELECT count(*) FROM ff.execution WHERE lease_expires_at_ms > ff.now_ms()"
        )

    await eventually(lapsed)


Forger: TypeAlias = Callable[[Lease], Lease]


def _other_ids(
    chance: random.Random, current: Sequence[Lease], old: Sequence[Lease]
) -> Sequence[Forger]:
    """The lease id is drawn, borrowed, or one bit off."""
    claims = list(dict.fromkeys(lease.lease_id for lease in current))
    next_claim = dict(zip(claims, claims[1:] + claims[:1], strict=True))
    of_old = {lease.execution_id: lease.lease_id for lease in old}
    ways: list[Callable[[Lease], UUID]] = [
        lambda lease: UUID(int=chance.getrandbits(128), version=4),
        lambda lease: UUID(int=lease.lease_id.int ^ 1 << chance.randrange(128)),
        lambda lease: of_old[lease.execution_id],
        lambda lease: next_claim[lease.lease_id],
        lambda lease: UUID(int=0),
    ]
    return [
        lambda lease, way=way: msgspec.structs.replace(lease, lease_id=way(lease)) for way in ways
    ]


def _other_epoch(chance: random.Random) -> Forger:
    def forged(lease: Lease) -> Lease:
        epoch = max(0, lease.lease_epoch + chance.choice((-1, 1, chance.randint(2, 1000))))
        return msgspec.structs.replace(lease, lease_epoch=epoch)

    return forged


def _later_attempt(chance: random.Random) -> Forger:
    def forged(lease: Lease) -> Lease:
        attempt = lease.attempt_index + chance.randint(1, 1000)
        return msgspec.structs.replace(lease, attempt_index=attempt)

    return forged


async def _forge(
    db: Connection,
    current: Sequence[Lease],
    number: int,
    ways: Sequence[Forger],
    error: type[FlowFabricError],
) -> Tally:
    """So many handles that are right but for what a way makes wrong, in calls of many."""
    tally = Tally()
    forgers = itertools.cycle(ways)
    async with tally.watching(db):
        for call in itertools.cycle(IN_BATCHES):
            forged = [next(forgers)(lease) for lease in current[: number - tally.calls]]
            if not forged:
                break
            tally.judge(call.__name__, await call(db, forged), error)
    return tally


def quick(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_steal(dsn, arena.chance("zombie"), leases=60, forged=600))


def full(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_steal(dsn, arena.chance("zombie"), leases=1_000, forged=100_000))


ZOMBIE: Final = Proof("zombie", quick, full, claims=("G3", "S5"))
