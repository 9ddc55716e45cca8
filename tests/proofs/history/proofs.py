"""P3: whatever clients are told while their lines are cut, one execution could have said it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Iterator, Sequence
from typing import Final

import asyncpg
import msgspec
import uvloop

from flowfabric.ids import ExecutionId
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.history.checker import check
from tests.proofs.history.clients import Actor, Subject
from tests.proofs.history.log import Answer, Log, Op
from tests.proofs.proof import Proof
from tests.worker.facts import eventually

OPERATIONS: Final = 2000
"""Calls of one run."""
RUNS: Final = 50
SECONDS: Final = 250.0
"""What the runs of a full proof may take together."""
ACTORS: Final = 8
AT_ONCE: Final = 4
"""Executions that are fought over at a time."""
EACH: Final = 25
"""Calls on each of them."""
TRAPPED: Final = 0.08
CUT_EVERY: Final = 0.15

_ROW: Final = """
SELECT e.lifecycle_phase, e.terminal_outcome, e.attempt_index, e.lease_epoch,
       e.total_attempt_count, e.retry_count, e.replay_count,
       (SELECT coalesce(array_agg(c.outcome ORDER BY c.event_id), '{}')
          FROM ff.completion_event c WHERE c.execution_id = e.execution_id) AS told
  FROM ff.execution e WHERE (e.partition_key, e.execution_id) = ($1, $2)
"""
_AT_REST: Final = """
SELECT count(*) = 0 FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""


class Result(msgspec.Struct, frozen=True):
    """What one run came to."""

    operations: int
    unknown: int
    void: int
    violations: Sequence[str]


async def run(dsn: str, chance: random.Random, operations: int = OPERATIONS) -> Result:
    """Clients at work until so many calls were made; then every history is checked."""
    log = Log()
    async with contextlib.AsyncExitStack() as stack:
        actors = [
            await stack.enter_async_context(
                Actor.on(f"actor-{number}", dsn, log, random.Random(chance.random()))
            )
            for number in range(ACTORS)
        ]
        cutting = asyncio.create_task(_cut_now_and_then(actors, random.Random(chance.random())))
        stack.callback(cutting.cancel)
        for _ in range(operations // (AT_ONCE * EACH)):
            subjects = [Subject() for _ in range(AT_ONCE)]
            left = iter(range(AT_ONCE * EACH))
            seeds = [random.Random(chance.random()) for _ in actors]
            await asyncio.gather(*map(_fight, actors, [subjects] * ACTORS, [left] * ACTORS, seeds))
    made, unknown, void = log.size, log.count(unknown=True), log.count(unknown=False)
    await _read_rows(dsn, log)
    violations = [text for ops in log.of.values() for text in _violations(ops)]
    return Result(made, unknown, void, violations)


async def _fight(
    actor: Actor, subjects: Sequence[Subject], left: Iterator[int], chance: random.Random
) -> None:
    for _ in left:
        await actor.act(chance.choice(subjects), trapped=chance.random() < TRAPPED)


async def _cut_now_and_then(actors: Sequence[Actor], chance: random.Random) -> None:
    while True:
        await asyncio.sleep(chance.uniform(0.5, 1.5) * CUT_EVERY)
        chance.choice(actors).cut()


async def _read_rows(dsn: str, log: Log) -> None:
    """The last word of every history, once what was cut off is over at the server too."""
    db = await asyncpg.connect(dsn)
    try:
        await eventually(lambda: db.fetchval(_AT_REST))
        for key in list(log.of):
            assert isinstance(key, ExecutionId)
            op = log.invoke(key, "row")
            row = await db.fetchrow(_ROW, key.partition_key, key.uuid)
            log.told(op, _row(row))
    finally:
        await db.close()


def _row(row: asyncpg.Record | None) -> Answer:
    if row is None:
        return ("absent",)
    *facts, told = row
    return ("row", *facts, tuple(told))


def _violations(ops: Sequence[Op]) -> Sequence[str]:
    verdict = check(ops)
    if verdict.possible:
        return ()
    lines = [f"  {'.' if op in verdict.order else '!'} {op}" for op in ops]
    return ["\n".join(("no order explains:", *lines))]


def figures(results: Sequence[Result], runs: int) -> list[Figure]:
    """Violations over all runs, and how many runs there were."""
    violations = [text for result in results for text in result.violations]
    made, unknown, void = (
        sum(getattr(result, field) for result in results)
        for field in ("operations", "unknown", "void")
    )
    return [
        Figure(
            "G2, G3, G7, G9",
            f"histories of calls that no order explains, in {made} calls, "
            f"{unknown} of them without an answer, {void} given up",
            "\n".join([f"{len(violations)}", *violations[:1]]),
            "0",
            held=not violations and unknown > 0,
        ),
        Figure(
            "G2, G3, G7, G9",
            f"runs of {OPERATIONS} calls",
            f"{len(results)}",
            f"{runs}",
            held=len(results) >= runs,
        ),
    ]


def prove(arena: Arena, runs: int) -> Sequence[Figure]:
    """So many runs, or as many as fit into the time."""
    until = time.monotonic() + SECONDS
    # The driver's pool writes a traceback for every connection that it cannot open again yet.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    results: list[Result] = []
    with arena.database() as dsn:
        while len(results) < runs and time.monotonic() < until:
            chance = arena.chance(f"history {len(results)}")
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                results.append(runner.run(run(dsn, chance)))
            if results[-1].violations:
                break
    return figures(results, runs)


HISTORY: Final = Proof(
    "history",
    quick=lambda arena: prove(arena, 1),
    full=lambda arena: prove(arena, RUNS),
    claims=("G2", "G3", "G7", "G9"),
)
