"""A suspension and the signals that it waits for, fired at the same moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from flowfabric.conditions import AnyCondition, Single
from flowfabric.config import DatabaseConfig
from flowfabric.db.transaction import transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.engine.suspensions.signal_answers import SignalAccepted
from flowfabric.engine.suspensions.suspension import Suspended, SuspendRequest, UsePending
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.errors import WaitpointClosed
from flowfabric.states import TimeoutBehavior
from tests import given

T = TypeVar("T")

WITHIN: Final = 0.005
"""Seconds by which each call is earlier or later than the others."""
NUDGE: Final = 0.002
"""Seconds by which the next suspension is later if this one came first, or earlier if not."""
AT_ONCE: Final = 8
TIMEOUT: Final = timedelta(seconds=2)
"""Of each suspension; it counts only if nobody resumed it."""
SWEEPS: Final = 50
"""More than enough: a sweep that always finds something does not end."""
KINDS: Final = ("name", "waitpoint", "handler's waitpoint")
WORKER: Final = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default",))
NAMES: Final = ("first", "second")
KEY: Final = "door"

AFTERWARDS: Final = """
SELECT e.execution_id, e.lifecycle_phase, e.eligibility_state,
       (SELECT count(*) FROM ff.completion_event c
         WHERE c.execution_id = e.execution_id AND c.outcome = 'resumable') AS resumes,
       (SELECT count(*) FROM ff.signal_event s WHERE s.execution_id = e.execution_id) AS signals,
       (SELECT count(*) FROM ff.signal_inbox i WHERE i.execution_id = e.execution_id)
       + coalesce((SELECT sum(jsonb_array_length(w.signals)) FROM ff.waitpoint_pending w
                    WHERE w.execution_id = e.execution_id), 0)::bigint AS kept
  FROM ff.execution e
"""


class Met(msgspec.Struct):
    """What was counted over many pairs."""

    pairs: int = 0
    suspended: int = 0
    """Of the pairs, those in which the suspension came first."""
    hangs: int = 0
    """Executions that are suspended though their signal was accepted."""
    double_resumes: int = 0
    not_resumed: int = 0
    """Executions that were suspended and go on without having been resumed, or the reverse."""
    lost: int = 0
    """Signals that were accepted and are not there."""
    errors: tuple[str, ...] = ()


class Aim:
    """When a suspension is fired so that it and the signals meet, whichever takes longer."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._lead: dict[str, float] = dict.fromkeys(KINDS, 0.0)

    def offsets(self, kind: str) -> list[float]:
        """Seconds to wait before the suspension, and before each signal."""
        lead = self._lead[kind]
        drawn = [self._chance.uniform(0, 2 * WITHIN) for _ in range(1 + len(NAMES))]
        return [drawn[0] + max(0.0, lead), *(each + max(0.0, -lead) for each in drawn[1:])]

    def learn(self, kind: str, *, suspended: bool) -> None:
        self._lead[kind] += NUDGE if suspended else -NUDGE


class Pair(msgspec.Struct, frozen=True):
    """An execution that is held, and what it will wait for."""

    kind: str
    lease: Lease
    waitpoint: Waitpoint | None


async def met(dsn: str, chance: random.Random, pairs: int) -> Met:
    """Fire that many pairs, a few at a time, and look at what became of them."""
    config = DatabaseConfig(dsn=dsn, pool_size=AT_ONCE)
    holders = await Engine.connect(config, role="tests")
    senders = await Engine.connect(config, role="tests")
    try:
        await holders.seed_waitpoint_hmac_secret("k1", "ab" * 32)
        waiting = await _prepared(holders, pairs)
        total, answered = Met(pairs=pairs), dict[UUID, tuple[bool, int]]()
        queue, aim = iter(waiting), Aim(chance)

        async def fire() -> None:
            for pair in queue:
                answers = await _fire(holders, senders, pair, aim.offsets(pair.kind))
                suspended = isinstance(answers[0], Suspended)
                aim.learn(pair.kind, suspended=suspended)
                accepted = sum(isinstance(each, SignalAccepted) for each in answers[1:])
                answered[pair.lease.execution_id.uuid] = (suspended, accepted)
                total.errors += tuple(
                    f"{pair.kind}: {type(each).__name__}: {each}"
                    for each in answers
                    if isinstance(each, Exception) and not isinstance(each, WaitpointClosed)
                )

        await asyncio.gather(*(fire() for _ in range(AT_ONCE)))
        await _expire(holders)
        await _judge(holders, total, answered)
        return total
    finally:
        await senders.close()
        await holders.close()


async def _prepared(engine: Engine, pairs: int) -> list[Pair]:
    """Executions that are held, in turn of each kind."""
    made: list[Pair] = []
    while len(made) < pairs:
        batch = min(100, pairs - len(made))
        await engine.create_execution([given.new() for _ in range(batch)])
        for claimed in await engine.claim(WORKER, ttl=3600, limit=batch):
            kind = KINDS[len(made) % len(KINDS)]
            waitpoint = None
            if kind != "name":
                waitpoint = await engine.create_waitpoint(claimed.lease, KEY, expires_in=3600)
            made.append(Pair(kind, claimed.lease, waitpoint))
    return made


def _request(pair: Pair) -> SuspendRequest:
    until = datetime.now(UTC) + TIMEOUT
    if pair.waitpoint is None:
        return SuspendRequest(
            lease=pair.lease,
            keeps_waitpoints=True,
            awaits_signals=NAMES,
            signals_read=0,
            timeout_at=until,
        )
    binding = (UsePending(waitpoint_id=pair.waitpoint.waitpoint_id),)
    if pair.kind == "waitpoint":
        return SuspendRequest(
            lease=pair.lease, bindings=binding, condition=Single(KEY), timeout_at=until
        )
    return SuspendRequest(
        lease=pair.lease,
        bindings=binding,
        condition=AnyCondition(members=(Single(KEY),)),
        timeout_behavior=TimeoutBehavior.AUTO_RESUME,
        keeps_waitpoints=True,
        timeout_at=until,
    )


async def _fire(
    holders: Engine, senders: Engine, pair: Pair, offsets: Sequence[float]
) -> Sequence[Any]:
    """The answers to the suspension and to two signals, any of which is enough."""

    async def suspend() -> Any:
        [answer] = await holders.suspend([_request(pair)])
        return answer

    async def signal(name: str) -> Any:
        execution_id, waitpoint = pair.lease.execution_id, pair.waitpoint
        if waitpoint is None:
            return await senders.send_signal(NewSignal(execution_id=execution_id, signal_name=name))
        return await senders.deliver_signal(
            execution_id, waitpoint.waitpoint_id, waitpoint.token, name
        )

    calls = (suspend(), *(signal(name) for name in NAMES))
    return await asyncio.gather(
        *(_later(offset, call) for offset, call in zip(offsets, calls, strict=True)),
        return_exceptions=True,
    )


async def _later(seconds: float, call: Awaitable[T]) -> T:
    await asyncio.sleep(seconds)
    return await call


async def _expire(engine: Engine) -> None:
    """Let the timeouts pass; those of suspensions that were resumed do nothing any more."""
    await asyncio.sleep(TIMEOUT.total_seconds())
    for _ in range(SWEEPS):
        if not await transact(engine.pool, "expire", lambda conn: expire_suspensions(conn, 500)):
            return


async def _judge(engine: Engine, total: Met, answered: dict[UUID, tuple[bool, int]]) -> None:
    async with engine.pool.connection() as conn:
        rows = await conn.fetch(AFTERWARDS)
    for row in rows:
        suspended, accepted = answered[row["execution_id"]]
        total.suspended += suspended
        total.hangs += row["lifecycle_phase"] == "suspended"
        total.double_resumes += row["resumes"] > 1
        goes_on = (
            (row["lifecycle_phase"], row["eligibility_state"]) == ("runnable", "eligible_now")
            if suspended
            else row["lifecycle_phase"] == "active"
        )
        total.not_resumed += not goes_on or row["resumes"] != suspended
        total.lost += accepted > min(row["signals"], row["kept"])
