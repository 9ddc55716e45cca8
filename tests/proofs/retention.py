"""G1: retention deletes what ended long enough ago, every row of it, and no row of a neighbour.

A crowd in few partitions: executions in every state on lanes that keep them for different times,
with tags, keys, grants, events, attempts and children, alone and in flows. Every row of every table
is read before and after each deletion. What may be missing then is worked out here, from the rows.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.lanes.set_lane_retention import KEEP
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.retention.trim import Trim
from flowfabric.errors import FlowFabricError
from flowfabric.ids import ExecutionId, child_id, children_group_id, new_uuid, uuid_partition
from flowfabric.joins import AnyOf
from flowfabric.reconcile.loop import sweep_all
from flowfabric.reconcile.sweeps import SWEEPS
from flowfabric.testing import Clock
from tests import given
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.fingerprint import tables
from tests.proofs.proof import Proof

Line: TypeAlias = tuple[str, str]
"""A table, and a row of it as text."""

RETENTION: Final[dict[str, float | None]] = {"brief": 60.0, "usual": None, "kept": KEEP}
USUAL: Final = 24 * 3600.0
NAMESPACES: Final = ("default", "other")
PARTITIONS: Final = 2
"""Many share a partition, so that what is found by its partition alone is a neighbour's row."""
BY_NAME: Final = {sweep.name: sweep for sweep in SWEEPS}
OWNERS: Final = ("execution_id", "upstream_eid", "waiter_eid")
OF_FLOWS: Final = ("flow_core", "flow_summary", "cancel_backlog", "pending_cancel_groups")

CORES: Final = """
SELECT e.partition_key, e.execution_id, e.flow_id, e.lifecycle_phase, e.terminal_at_ms, e.tags,
       r.lane_id, r.namespace FROM ff.execution e JOIN ff.route r USING (route_id)
"""
WAITERS: Final = "SELECT group_id, waiter_eid FROM ff.edge_group"


class Crowd:
    """What is in the database, made by operations of the engine."""

    def __init__(self, engine: Engine, chance: random.Random) -> None:
        self._engine, self._chance = engine, chance
        self._ids: list[ExecutionId] = []

    async def gather(self, number: int) -> None:
        """So many more executions and flows, all of which wait."""
        for _ in range(number):
            lane, namespace = self._chance.choice(list(RETENTION)), self._chance.choice(NAMESPACES)
            tags = {"proof.colour": self._chance.choice(("red", "blue"))}
            fields: dict[str, Any] = {"lane_id": lane, "namespace": namespace, "tags": tags}
            if self._chance.random() < 0.3:
                await self._flow(fields)
            elif self._chance.random() < 0.3:
                await self._create(**fields, idempotency_key=f"key {new_uuid()}")
            else:
                home = self._chance.randrange(PARTITIONS)
                await self._create(**fields, execution_id=ExecutionId(home, new_uuid()))

    async def _create(self, **fields: Any) -> None:
        new = given.new(**fields, policy=given.retrying(2))
        await self._engine.create_execution([new])
        self._ids.append(new.execution_id)

    async def _flow(self, fields: dict[str, Any]) -> None:
        flow_id = new_uuid()
        while (home := uuid_partition(flow_id)) >= PARTITIONS:
            flow_id = new_uuid()
        ids = [ExecutionId(home, new_uuid()) for _ in range(self._chance.randint(2, 5))]
        edges = [
            NewEdge(upstream=up, downstream=down, data_passing_ref="input")
            for number, down in enumerate(ids)
            for up in ids[:number]
            if self._chance.random() < 0.6
        ]
        joined = {edge.downstream for edge in edges}
        ways = ("cancel_remaining", "let_run")
        policies = {each: AnyOf(self._chance.choice(ways)) for each in joined if each == ids[-1]}
        await self._engine.submit_flow(
            NewFlow(
                flow_id=flow_id,
                flow_kind="crowd",
                namespace=fields["namespace"],
                members=[given.new(execution_id=each, **fields) for each in ids],
                edges=edges,
                policies=policies,
            )
        )
        self._ids += ids

    async def live(self, steps: int) -> None:
        """Workers and operators do what they do."""
        for _ in range(steps):
            for namespace in NAMESPACES:
                await self._work(namespace)
            for act in self._chance.sample([self._tag, self._rank, self._cancel, self._promise], 2):
                await act(self._chance.choice(self._ids))
            await self._engine.dispatch()

    async def _work(self, namespace: str) -> None:
        worker = Claimant(
            worker_id="w",
            worker_instance_id="w-1",
            lanes=tuple(RETENTION),
            namespace=namespace,
        )
        for task in await self._engine.claim(worker, ttl=10**8, limit=self._chance.randint(1, 6)):
            await self._chance.choice((self._complete, self._complete, self._fail, self._wait))(
                task.lease
            )

    async def _complete(self, lease: Lease) -> None:
        await self._engine.complete([Completion(lease, b"1")])

    async def _fail(self, lease: Lease) -> None:
        category = self._chance.choice(("transient", "permanent"))
        await self._engine.fail([Failure(lease=lease, reason="boom", category=category)])

    async def _wait(self, lease: Lease) -> None:
        """It holds on to its lease, with a child that somebody may run."""
        parent = lease.execution_id
        lane, kind = self._chance.choice(list(RETENTION)), "job"
        child = given.new(execution_id=child_id(parent, 0, 0, kind=kind), lane_id=lane)
        group = children_group_id(parent, 0)
        if self._chance.random() < 0.5:
            await self._engine.spawn_children(lease, [child], group=group)

    async def _tag(self, execution_id: ExecutionId) -> None:
        await self._quietly(self._engine.set_execution_tag(execution_id, "proof.seen", "yes"))

    async def _rank(self, execution_id: ExecutionId) -> None:
        await self._quietly(self._engine.change_priority(execution_id, 7))

    async def _cancel(self, execution_id: ExecutionId) -> None:
        await self._quietly(self._engine.cancel_execution(execution_id, reason="no"))

    async def _promise(self, execution_id: ExecutionId) -> None:
        lane = self._chance.choice(list(RETENTION))
        await self._quietly(
            self._engine.issue_claim_grant(
                execution_id, lane_id=lane, worker_id="w", worker_instance_id="w-1"
            )
        )

    async def _quietly(self, call: Awaitable[Any]) -> None:
        """A refusal is as good: what counts are the rows that come of it."""
        try:
            await call
        except FlowFabricError:
            return


class Seen(msgspec.Struct, frozen=True):
    """Every row, and whom it belongs to."""

    rows: dict[Line, frozenset[str]]
    """Executions and flows by their uuid; a row goes with any of them."""
    executions: list[dict[str, Any]]

    @classmethod
    async def of(cls, db: Connection) -> Seen:
        waiters = {str(row["group_id"]): str(row["waiter_eid"]) for row in await db.fetch(WAITERS)}
        rows: dict[Line, frozenset[str]] = {}
        for table in await tables(db):
            for record in await db.fetch(f"SELECT to_jsonb(t)::text AS line FROM ff.{table} t"):
                rows[table, record["line"]] = _owners(table, record["line"], waiters)
        return cls(rows, [dict(row) for row in await db.fetch(CORES)])

    def going(self, chosen: Callable[[dict[str, Any]], bool], now_ms: int) -> set[str]:
        """The executions that this deletion takes, and the flows that are left without a member."""
        open_flows = {
            each["flow_id"] for each in self.executions if each["lifecycle_phase"] != "terminal"
        }
        gone = [
            each
            for each in self.executions
            if each["lifecycle_phase"] == "terminal"
            and (each["flow_id"] is None or each["flow_id"] not in open_flows)
            and chosen(each)
        ]
        staying = {each["flow_id"] for each in self.executions if each not in gone}
        ended = {each["flow_id"] for each in gone} - staying - {None}
        return {str(each["execution_id"]) for each in gone} | {str(each) for each in ended}


def _owners(table: str, line: str, waiters: dict[str, str]) -> frozenset[str]:
    row = msgspec.json.decode(line)
    if table in OF_FLOWS:
        return frozenset({row["flow_id"]})
    owners = {row[column] for column in OWNERS if row.get(column)}
    if table == "edge":
        owners.add(waiters.get(row["group_id"], row["group_id"]))
    return frozenset(owners)


class Tally(msgspec.Struct):
    """What was counted over all deletions."""

    deletions: int = 0
    gone: int = 0
    kept: int = 0
    wrong_count: int = 0
    missing: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows of neighbours that are not there any more, by table."""
    left: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rows that should have gone, by table."""

    async def judge(
        self,
        db: Connection,
        chosen: Callable[[dict[str, Any]], bool],
        now_ms: int,
        delete: Callable[[], Awaitable[int]],
    ) -> None:
        """Delete, and hold what is there then against what should be."""
        before = await Seen.of(db)
        going = before.going(chosen, now_ms)
        deleted = await delete()
        after = await Seen.of(db)
        due = {line for line, owners in before.rows.items() if owners & going}
        self.deletions += 1
        executions = sum(str(each["execution_id"]) in going for each in before.executions)
        self.gone += executions
        self.wrong_count += deleted != executions
        self.kept += len(before.rows) - len(due)
        self.missing.update(table for table, line in before.rows.keys() - due - after.rows.keys())
        self.left.update(table for table, line in due & after.rows.keys())


async def _run(dsn: str, chance: random.Random, *, rounds: int, each: int) -> list[Figure]:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    engine = await Engine.connect(DatabaseConfig(dsn=dsn))
    tally = Tally()
    try:
        clock = await Clock.install(db)
        await engine.register_lanes(list(RETENTION), registered_by="proof")
        for lane, kept in RETENTION.items():
            await engine.set_lane_retention(lane, kept)
        await engine.seed_waitpoint_hmac_secret("k1", "ab" * 32)
        crowd = Crowd(engine, chance)
        for _ in range(rounds):
            await crowd.gather(each)
            await crowd.live(6)
            for row in await db.fetch("SELECT flow_id FROM ff.flow_core"):
                await engine.project_flow_summary(row["flow_id"])
            await clock.advance(chance.choice((20, 45, 3600)))
            await _sweep(db, engine, clock, tally)
            await _trim(db, engine, clock, chance, tally)
        await clock.advance(USUAL)
        await _sweep(db, engine, clock, tally)
    finally:
        await engine.close()
        await db.close()
    return _figures(tally)


async def _sweep(db: Connection, engine: Engine, clock: Clock, tally: Tally) -> None:
    """By the retention of the lanes."""
    now_ms = await clock.now_ms()

    def chosen(each: dict[str, Any]) -> bool:
        kept = RETENTION[each["lane_id"]]
        seconds = USUAL if kept is None else float(kept)
        return seconds != KEEP and each["terminal_at_ms"] <= now_ms - 1000 * seconds

    sweep = BY_NAME["delete_finished"]
    await tally.judge(db, chosen, now_ms, lambda: sweep_all(engine.pool, sweep))


async def _trim(
    db: Connection, engine: Engine, clock: Clock, chance: random.Random, tally: Tally
) -> None:
    """On request, by lane, age, namespace and tag."""
    now_ms = await clock.now_ms()
    trim = Trim(
        lane_id=chance.choice(list(RETENTION)),
        retention=timedelta(seconds=chance.choice((0, 30))),
        namespace=chance.choice((None, *NAMESPACES)),
        tag=chance.choice((None, ("proof.colour", "red"))),
    )
    oldest = now_ms - trim.retention / timedelta(milliseconds=1)  # type: ignore[operator]

    def chosen(each: dict[str, Any]) -> bool:
        tags = msgspec.json.decode(each["tags"]) if each["tags"] else {}
        return (
            each["lane_id"] == trim.lane_id
            and trim.namespace in (None, each["namespace"])
            and (trim.tag is None or tags.get(trim.tag[0]) == trim.tag[1])
            and each["terminal_at_ms"] <= oldest
        )

    await tally.judge(db, chosen, now_ms, lambda: engine.trim_retention(trim))


def _figures(tally: Tally) -> list[Figure]:
    def told(found: Counter[str]) -> str:
        return ", ".join(f"{number} of {table}" for table, number in found.most_common()) or "0"

    return [
        Figure(
            "G1",
            f"{tally.deletions} deletions, {tally.kept:,} rows that were to stay: missing",
            told(tally.missing),
            "0",
            held=tally.kept > 0 and not tally.missing,
        ),
        Figure(
            "G1",
            f"{tally.gone:,} executions that were to go: rows left; deletions that counted wrong",
            f"{told(tally.left)}; {tally.wrong_count}",
            "0; 0",
            held=tally.gone > 0 and not tally.left and not tally.wrong_count,
        ),
    ]


def quick(arena: Arena) -> Sequence[Figure]:
    return _prove(arena, rounds=3, each=12)


def full(arena: Arena) -> Sequence[Figure]:
    return _prove(arena, rounds=30, each=40)


def _prove(arena: Arena, *, rounds: int, each: int) -> Sequence[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_run(dsn, arena.chance("retention"), rounds=rounds, each=each))


RETAINED: Final = Proof("retention", quick, full, claims=("G1",))
