"""Usage of budgets is exact: no hard limit is passed, no report is lost or counted twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.usage import HardBreach, UsageAlreadyApplied
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError, TransportError
from flowfabric.ids import ExecutionId
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof

T = TypeVar("T")

REPEATED: Final = 0.1
"""The share of reports that are sent twice, and of answers that are lost."""
BUDGETS: Final = ("limited", "loose", "nobody's")
_KILL_EVERY: Final = 0.05

KILL: Final = """
SELECT pg_terminate_backend(pid)
  FROM (SELECT pid FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'
         ORDER BY random() LIMIT 1) AS one
"""
DEADLOCKS: Final = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
WRONG: Final = """
SELECT count(*)
  FROM ff.budget_usage u
  LEFT JOIN ff.budget_policy p USING (partition_key, budget_id)
 WHERE u.dimensions_key = 'spent'
   AND u.current_value <> (
       SELECT coalesce(sum(s.delta_total), 0) FROM ff.budget_usage_by_exec s
        WHERE (s.partition_key, s.budget_id, s.dimensions_key)
            = (u.partition_key, u.budget_id, u.dimensions_key)
          AND s.period_no = coalesce(p.period_no, 0))
"""
"""Dimensions whose usage is not what the ledger says: only spends count there."""


class Seen(msgspec.Struct):
    """What the reporters were told, and what was found afterwards."""

    sent: int = 0
    repeats: int = 0
    refused: int = 0
    killed: int = 0
    doubled: int = 0
    """Repeated reports that were not recognised."""
    difference: int = 0
    """Counted amounts less the amounts of the reports that were answered as counted."""
    over: int = 0
    """How far a limit was passed."""
    wrong: int = 0
    """Counters that differ from a recount of the ledger."""
    deadlocks: int = 0


async def _run(dsn: str, reporters: int, reports: int, seed: int) -> Seen:
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=min(reporters, 16)))
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    seen, counted = Seen(), list[int]()
    limit = reporters * reports  # about half of what is reported
    killing: asyncio.Task[None] | None = None
    try:
        await engine.create_budget(
            "limited", dimensions=["used"], hard_limits=[limit], soft_limits=[limit // 2]
        )
        await engine.create_budget(
            "loose", dimensions=["spent"], hard_limits=[0], soft_limits=[0], reset_interval=3600
        )
        killing = asyncio.create_task(_kill(db, seen))
        await asyncio.gather(
            *(
                _report(engine, number, reports, random.Random(seed + number), seen, counted)
                for number in range(reporters)
            )
        )
        await _stop(killing)
        usage = (await engine.read_budget_usage_and_limits("limited")).usage["used"]
        seen.difference, seen.over = usage - sum(counted), max(0, usage - limit)
        seen.wrong = await db.fetchval(WRONG)
        seen.deadlocks = await db.fetchval(DEADLOCKS)
        return seen
    finally:
        if killing is not None:
            await _stop(killing)
        await db.close()
        await engine.close()


async def _report(
    engine: Engine, number: int, reports: int, chance: random.Random, seen: Seen, counted: list[int]
) -> None:
    """Report under keys, some twice; spend, release and reset beside it."""
    executions = [ExecutionId.mint() for _ in range(3)]
    for report in range(reports):
        amount, key = chance.randint(1, 3), f"{number}.{report}"

        def send(amount: int = amount, key: str = key) -> Awaitable[Any]:
            return engine.report_usage_admin("limited", ["used"], [amount], dedup_key=key)

        answer = await _answered(send)
        seen.sent += 1
        if isinstance(answer, HardBreach):
            seen.refused += 1
        else:
            counted.append(amount)
            if chance.random() < REPEATED:
                seen.repeats += 1
                again = await _answered(send)
                if not isinstance(again, UsageAlreadyApplied) and again != answer:
                    seen.doubled += 1
        await _spend(engine, chance, executions, resets=report < reports / 2)


async def _spend(
    engine: Engine, chance: random.Random, executions: list[ExecutionId], *, resets: bool
) -> None:
    """Spend or release; what is wrong after the last reset stays to be found."""
    budget, execution = chance.choice(BUDGETS[1:]), chance.choice(executions)
    if resets and chance.random() < 0.03:
        await _answered(lambda: engine.reset_budget("loose"))
    if chance.random() < 0.25:
        await _answered(lambda: engine.release_budget(budget, execution))
    else:
        await _answered(lambda: engine.record_spend(budget, execution, {"spent": 1, "other": 2}))


async def _answered(send: Callable[[], Awaitable[T]]) -> T:
    """The answer, asked for again when the connection broke: whether it counted is unknown."""
    while True:
        try:
            return await send()
        except TransportError:
            await asyncio.sleep(0)
        except FlowFabricError as error:
            if "terminat" not in str(error):
                raise


async def _kill(db: Connection, seen: Seen) -> None:
    """The server processes of reporters die, one after the other."""
    while True:
        await asyncio.sleep(_KILL_EVERY)
        seen.killed += len(await db.fetch(KILL))


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _figures(seen: Seen, reporters: int, reports: int) -> list[Figure]:
    told = f"({seen.repeats} repeated, {seen.refused} refused, {seen.killed} connections killed)"
    return [
        Figure(
            "G13",
            f"{reporters} reporters x {reports:,} reports on one budget: total off by, limit"
            " passed by, repeats counted",
            f"{seen.difference}, {seen.over}, {seen.doubled} {told}",
            "0, 0, 0",
            held=(seen.difference, seen.over, seen.doubled) == (0, 0, 0)
            and seen.sent == reporters * reports
            and min(seen.refused, seen.repeats) > 0,
        ),
        Figure(
            "G13",
            "spends, releases and resets beside one another: counters that differ from a recount,"
            " deadlocks",
            f"{seen.wrong}, {seen.deadlocks}",
            "0, 0",
            held=(seen.wrong, seen.deadlocks) == (0, 0),
        ),
    ]


def _proven(arena: Arena, reporters: int, reports: int) -> list[Figure]:
    with arena.database() as dsn:
        seen = asyncio.run(_run(dsn, reporters, reports, arena.seed))
        return _figures(seen, reporters, reports)


def quick(arena: Arena) -> list[Figure]:
    return _proven(arena, 8, 40)


def full(arena: Arena) -> list[Figure]:
    return _proven(arena, 16, 1000)


BUDGETS_EXACT: Final = Proof("budgets", quick, full, claims=("G13",))
