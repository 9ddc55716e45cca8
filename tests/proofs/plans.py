"""Claims and sweeps follow indexes: what they cost does not grow with what has ended.

Each statement is explained as it runs, with and without statistics, planned for its parameters and
for any, over our connections and over those of a pooler, which have no settings of ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.db.vacuum_queue import vacuum_queue
from flowfabric.engine.budgets import release_lost_races
from flowfabric.engine.budgets.sample_budget_usage import sample_budget_usage
from flowfabric.engine.joins import redispatch_lost_completions
from flowfabric.engine.lifecycle import unblock_budgets
from flowfabric.reconcile.sweeps import SWEEPS, Sweep
from tests.engine.lifecycle.claim_costs import LOCKED, MOST, Queue, cost
from tests.explained import Explained, whole_reads
from tests.proofs.arena import Arena
from tests.proofs.crowd import a_few_due, analyzed, crowded
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.proofs.rationed import rationed, rations_due
from tests.proofs.scheduled import schedules_alive, schedules_due
from tests.proofs.waits import waiting, waits_due

AT_REST: Final = 50
"""Buffers that a statement of a sweep may touch when nothing is due."""
BATCHES: Final = {sweep.name: sweep.batch for sweep in SWEEPS}
LOOKS: Final = {
    "redispatch_lost_completions": (redispatch_lost_completions.LOOKED_AT, 10),
    "release_lost_races": (release_lost_races.LOOKED_AT, 10),
    "unblock_budgets": (unblock_budgets.SETS, 15),
    "unblock_held_keys": (BATCHES["unblock_held_keys"], 25),
    "trim_quotas": (BATCHES["trim_quotas"], 10),
    "sample_budget_usage": (1000, 10),
}
"""Sweeps that look at those that wait, though nothing is due: at how many in one call, and how many
buffers each look may touch. Executions, ledgers, sets of budgets, keys that hold back, keys, and
budgets."""
NOT_HOT: Final = frozenset(
    {
        "activity",
        "activity_place",
        "budget_usage_place",
        "bulk_action",
        "bulk_batch",
        "lane_registry",
        "partition_config",
        "route",
        "waiter",
        "web_session",
        "worker_registry",
    }
)
"""Tables with one row, or a row per lane, per kind, per process, per session or per minute."""
BY_PAGE: Final = frozenset(
    {
        ("expire_leases", "lease"),
        ("expire_attempts", "lease"),
        ("sample_budget_usage", "budget_policy"),
        ("sample_budget_usage", "budget_usage"),
    }
)
"""There is no index on the instants of leases, which every renewal would have to change. So every
held lease is looked at; page by page takes a fiftieth of the buffers of its primary key. Nor is
there one on the usage of budgets, which every report would: once a minute all are looked at."""


class Size(msgspec.Struct, frozen=True):
    ended: int
    live: int
    queued: tuple[int, ...]
    locked: int = 0


class Look(msgspec.Struct, frozen=True):
    """One sweep, seen once."""

    sweep: str
    pooler: bool
    due: bool
    moved: int
    buffers: int
    read_whole: frozenset[str]


def quick(arena: Arena) -> Sequence[Figure]:
    return _proven(arena, Size(ended=10_000, live=200, queued=(1000, 10_000)))


def full(arena: Arena) -> Sequence[Figure]:
    return _proven(
        arena, Size(ended=100_000, live=1000, queued=(1000, 100_000, 1_000_000), locked=1000)
    )


def _proven(arena: Arena, size: Size) -> Sequence[Figure]:
    looks: list[Look] = []
    for pooler in (False, True):
        with arena.database() as dsn:
            looks += asyncio.run(_sweeps(DatabaseConfig(dsn=dsn, pooler=pooler), size))
    arena.say("sweeps are explained; now claims")
    with arena.database() as dsn:
        claims = asyncio.run(_claims(DatabaseConfig(dsn=dsn, statement_timeout=120), size))
    return [*_of_sweeps(looks, size), *claims]


# Sweeps.


logging.getLogger("flowfabric.flows").addHandler(logging.NullHandler())  # what is due is a fault


async def _sweeps(config: DatabaseConfig, size: Size) -> list[Look]:
    db = await connect(config, role="tests")
    try:
        await crowded(db, ended=size.ended, live=size.live)
        armed = await waiting(db, live=size.live)
        await schedules_alive(db, live=size.live)
        spent = await rationed(db, live=size.live)
        await sample_budget_usage(db, 1_000_000)
        looks = await _looked(db, config, due=False)
        await analyzed(db)
        looks += await _looked(db, config, due=False)
        await a_few_due(db)
        await waits_due(db, armed)
        await schedules_due(db)
        await rations_due(db, spent)
        looks += await _looked(db, config, due=True)
        await analyzed(db)
        return looks + await _looked(db, config, due=True)
    finally:
        await db.close()


async def _looked(db: Connection, config: DatabaseConfig, *, due: bool) -> list[Look]:
    # Behind a pooler nothing is prepared, so every statement is planned for its parameters.
    plans = (False,) if config.pooler else (False, True)
    return [
        await _look(db, sweep, pooler=config.pooler, due=due, generic=generic)
        for generic in plans
        for sweep in SWEEPS
    ]


class _Explained(Explained):
    """Explains statements with arrays of bytes and of JSON too: a compensation is submitted."""

    async def _explain(self, sql: str, params: Sequence[object]) -> None:
        texts = [_array(each) if isinstance(each, list | tuple) else each for each in params]
        await super()._explain(sql, texts)


def _array(values: Sequence[object]) -> str:
    """The values as the text of an array."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    text = f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


async def _look(db: Connection, sweep: Sweep, *, pooler: bool, due: bool, generic: bool) -> Look:
    explained = _Explained(db, generic=generic)
    before = await whole_reads(db)
    undone = db.transaction()
    await undone.start()
    try:
        if sweep.check is not None:
            await sweep.check(explained)  # type: ignore[arg-type]
        moved = await sweep.step(explained, sweep.batch)  # type: ignore[arg-type]
        after = await whole_reads(db)
    finally:
        await undone.rollback()
    return Look(
        sweep=sweep.name,
        pooler=pooler,
        due=due,
        moved=moved,
        buffers=max(each.buffers for each in explained.costs),
        read_whole=frozenset(
            table for table, times in after.items() if times > before.get(table, 0)
        ),
    )


def _of_sweeps(looks: Sequence[Look], size: Size) -> list[Figure]:
    crowd = (
        f"{len(SWEEPS) - len(LOOKS)} sweeps, {size.ended:,} ended, {size.live:,} of each kind alive"
    )
    idle = [look for look in looks if not look.due]
    whole = {
        (look.sweep, table)
        for look in looks
        if not look.pooler
        for table in look.read_whole - NOT_HOT
    } - BY_PAGE
    moving = {look.sweep for look in looks if look.due and look.moved}
    assert not any(look.moved for look in idle), "something was due"
    not_due = {sweep.name for sweep in SWEEPS} - moving - {vacuum_queue.__name__}  # moves no rows
    assert not not_due, f"something was not due: {sorted(not_due)}"
    quiet = [look for look in idle if look.sweep not in LOOKS]
    return [
        _worst(f"{crowd}, nothing due: most buffers", [e for e in quiet if not e.pooler]),
        _worst("the same through a pooler, without our settings", [e for e in quiet if e.pooler]),
        *(_each_look(sweep, idle, size) for sweep in LOOKS),
        Figure(
            promise="G20",
            what="hot tables that a sweep reads from end to end, with nothing due or a little; held"
            " leases and budgets apart, which are looked at page by page",
            reached=", ".join(f"{sweep}: {table}" for sweep, table in sorted(whole)) or "0",
            target="0",
            held=not whole,
        ),
    ]


def _each_look(sweep: str, idle: Sequence[Look], size: Size) -> Figure:
    at_most, allowed = LOOKS[sweep]
    looked_at = min(size.live, at_most)
    most = max(look.buffers for look in idle if look.sweep == sweep) / looked_at
    return Figure(
        promise="G20",
        what=f"{sweep}, nothing due: buffers for each of the {looked_at:,} that it looks at",
        reached=f"{most:.1f}",
        target=f"<= {allowed}",
        held=most <= allowed,
    )


def _worst(what: str, looks: Sequence[Look]) -> Figure:
    worst = max(looks, key=lambda look: look.buffers)
    return Figure(
        promise="G20",
        what=what,
        reached=f"{worst.buffers} ({worst.sweep})",
        target=f"<= {AT_REST}",
        held=worst.buffers <= AT_REST,
    )


# Claims.


async def _claims(config: DatabaseConfig, size: Size) -> list[Figure]:
    db = await connect(config, role="tests")
    other = await connect(config, role="tests")
    try:
        queue, touched = Queue(db), dict[int, int]()
        for queued in size.queued:
            await queue.add(queued - max(touched, default=0))
            touched[queued] = max((await cost(db)).values())
        figures = [
            Figure(
                promise="G20",
                what="buffers of a claim, by how many are queued",
                reached=", ".join(f"{queued:,}: {most}" for queued, most in touched.items()),
                target=f"<= {MOST}",
                held=max(touched.values()) <= MOST,
            )
        ]
        if size.locked:
            figures.append(await _behind(db, other, size.locked))
        return figures
    finally:
        await other.close()
        await db.close()


async def _behind(db: Connection, other: Connection, locked: int) -> Figure:
    """A claim looks at each row that it passes over, in its order, and tries to lock it."""
    alone = max((await cost(db)).values())
    async with other.transaction():
        await other.execute(LOCKED, locked)
        behind = max((await cost(db)).values())
    return Figure(
        promise="G20",
        what=f"buffers of a claim while others hold the best {locked:,} locked",
        reached=f"{behind} ({(behind - alone) / locked:.1f} for each locked row)",
        target=f"<= {MOST}",
        held=behind <= MOST,
    )


PLANS: Final = Proof("plans", quick=quick, full=full, claims=("G20",))
