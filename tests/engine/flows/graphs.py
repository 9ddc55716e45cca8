"""Where tests of flows begin: graphs written as arrows, whose members are called by name."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

from flowfabric.db.rows import Connection
from flowfabric.db.transaction import transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.joins.apply_dependency_to_child import EdgeAlreadyApplied, EdgeApplied
from flowfabric.engine.joins.cancel_siblings import cancel_siblings
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.claim_by_id import LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.fail import Failure, TerminalFailed, fail
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandleKind
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId, member_group_id, new_uuid, uuid_partition
from flowfabric.joins import JoinPolicy
from flowfabric.states import TerminalOutcome
from tests import given

T = TypeVar("T")

LETTERS = {
    "waiting": "w",
    "delayed": "d",
    "waiting_children": "wc",
    "active": "a",
    "completed": "ok",
    "failed": "f",
    "cancelled": "c",
    "expired": "e",
    "skipped": "k",
}
"""How the worked examples of flows.md write public states."""

OUTCOMES = {
    "S": TerminalOutcome.SUCCESS,
    "F": TerminalOutcome.FAILED,
    "C": TerminalOutcome.CANCELLED,
    "E": TerminalOutcome.EXPIRED,
    "K": TerminalOutcome.SKIPPED,
}


def home(flow_id: UUID) -> int:
    """The partition of a flow and of its members."""
    return uuid_partition(flow_id)


def minted(flow_id: UUID) -> ExecutionId:
    """A fresh id for a member."""
    return ExecutionId(home(flow_id), new_uuid())


def member(flow_id: UUID, name: str | None = None, **fields: Any) -> NewExecution:
    """A member to submit."""
    return given.new(execution_id=minted(flow_id), member_name=name, **fields)


def flow_elsewhere(than: UUID) -> UUID:
    """The id of a flow that lives in another partition."""
    while home(found := uuid4()) == home(than):
        pass
    return found


def flow_beside(other: UUID) -> UUID:
    """The id of another flow in the same partition."""
    while home(found := uuid4()) != home(other):
        pass
    return found


def names_of(arrows: str) -> list[str]:
    """The members that `a>b a>c d` names, each once."""
    return list(dict.fromkeys(name for arrow in arrows.split() for name in arrow.split(">")))


def edges_of(arrows: str) -> list[tuple[str, str]]:
    """The edges that `a>b a>c d` draws."""
    return [
        (up, down) for up, arrow, down in (one.partition(">") for one in arrows.split()) if arrow
    ]


class Graph:
    """A flow, its members by name, and the leases that were taken."""

    def __init__(self, engine: Engine, flow_id: UUID, ids: dict[str, ExecutionId]) -> None:
        self.engine, self.flow_id, self.ids = engine, flow_id, ids
        self.edge_ids: dict[str, UUID] = {}
        self.leases: dict[str, Lease] = {}

    def __getitem__(self, name: str) -> ExecutionId:
        return self.ids[name]

    def named(self, executions: Collection[ExecutionId]) -> list[str]:
        """The names of these members, in order."""
        return sorted(name for name, each in self.ids.items() if each in executions)

    # Building by single operations.

    async def add(self, *names: str, **fields: Any) -> Graph:
        """Further members, each created and then added."""
        for name in names:
            new = member(self.flow_id, name, **fields)
            await self.engine.create_execution([new])
            await self.engine.add_execution_to_flow(
                self.flow_id, new.execution_id, member_name=name
            )
            self.ids[name] = new.execution_id
        return self

    async def stage(self, arrow: str, *, ref: str | None = None) -> UUID:
        """One more edge of the graph, at whatever revision it has; its id."""
        up, down = arrow.split(">")
        edge_id = self.edge_ids[arrow] = new_uuid()
        await self.engine.stage_dependency_edge(
            self.flow_id,
            edge_id,
            self[up],
            self[down],
            expected_graph_revision=await self.revision(),
            data_passing_ref=ref,
        )
        return edge_id

    async def apply(self, arrow: str) -> EdgeApplied | EdgeAlreadyApplied:
        return await self.engine.apply_dependency_to_child(self.flow_id, self.edge_ids[arrow])

    async def link(self, *arrows: str, ref: str | None = None) -> int:
        """Edges staged and applied; how many of the last one's group are unresolved."""
        left = -1
        for arrow in arrows:
            await self.stage(arrow, ref=ref)
            applied = await self.apply(arrow)
            assert isinstance(applied, EdgeApplied)
            left = applied.unsatisfied_count
        return left

    async def revision(self) -> int:
        return (await self.flow())["graph_revision"]

    # What workers and operators do to members.

    async def claim(self, *names: str, ttl: float = 30) -> list[Lease]:
        """Worker w-1 holds these members."""
        for name in names:
            epoch = (await self.row(name))["lease_epoch"]
            taker = LeaseRequest(worker_id="w", worker_instance_id="w-1", lease_ttl=ttl)
            async with self.engine.pool.connection() as conn:
                taken = await claim_by_id(
                    conn, self[name], taker, lease_epoch=epoch, kind=LeaseHandleKind.FRESH
                )
            self.leases[name] = taken.lease
        return [self.leases[name] for name in names]

    async def held(self, name: str) -> Lease:
        """The lease of a member, claimed if it is not held yet."""
        if name not in self.leases:
            await self.claim(name)
        return self.leases.pop(name)

    async def complete(self, *names: str, result: bytes | None = None) -> None:
        for name in names:
            lease = await self.held(name)
            [answer] = await self.engine.complete([Completion(lease, result)])
            assert isinstance(answer, Completed), answer

    async def fail(self, *names: str) -> None:
        """These members fail for good."""
        for name in names:
            lease = await self.held(name)
            failure = Failure(lease=lease, reason="boom", category="permanent")
            [answer] = await self.engine.fail([failure])
            assert isinstance(answer, TerminalFailed), answer

    async def cancel(self, *names: str) -> None:
        for name in names:
            await self.engine.cancel_execution(self[name], reason="not wanted")

    async def end(self, name: str, letter: str) -> None:
        """The member ends: S success, F failed, C cancelled, E expired, K skipped."""
        match letter:
            case "S":
                await self.complete(name)
            case "F":
                await self.fail(name)
            case "C":
                await self.cancel(name)
            case _:
                await self.transact(lambda conn: end_all(conn, [self[name]], letter))

    async def replay(self, name: str, *, downstream: bool = True) -> str:
        """The member runs again; the public state that the answer names."""
        replayed = await self.engine.replay_execution(self[name], downstream=downstream)
        return replayed.public_state.value

    # What carries ends on, a step at a time.

    async def carry(self, limit: int = 256) -> int:
        """One call of the dispatcher; nobody is cancelled."""
        return await self.transact(lambda conn: dispatch_completions(conn, limit))

    async def carry_all(self) -> int:
        """Every end is carried; nobody is cancelled."""
        total = 0
        while moved := await self.carry():
            total += moved
        return total

    async def tick(self) -> int:
        """One turn of the sibling dispatcher; how many groups."""
        return await self.transact(cancel_siblings)

    async def transact(self, body: Callable[[Connection], Awaitable[T]]) -> T:
        return await transact(self.engine.pool, "test", body)

    # What stands.

    async def fetch(self, sql: str, *params: object) -> list[Any]:
        async with self.engine.pool.connection() as conn:
            return await conn.fetch(sql, *params)

    async def row(self, name: str) -> dict[str, Any]:
        async with self.engine.pool.connection() as conn:
            return await given.row(conn, self[name])

    async def flow(self) -> dict[str, Any]:
        [found] = await self.fetch("SELECT * FROM ff.flow_core WHERE flow_id = $1", self.flow_id)
        return dict(found)

    async def states(self) -> str:
        """`a:ok b:wc`: every member and where it stands, by name."""
        rows = await self.fetch(
            "SELECT execution_id, public_state FROM ff.execution WHERE flow_id = $1", self.flow_id
        )
        stand = {row["execution_id"]: LETTERS[row["public_state"]] for row in rows}
        return " ".join(f"{name}:{stand[self[name].uuid]}" for name in sorted(self.ids))

    async def state(self, name: str) -> str:
        return (await self.row(name))["public_state"]

    async def group_row(self, name: str) -> dict[str, Any]:
        [found] = await self.fetch(
            "SELECT * FROM ff.edge_group WHERE waiter_eid = $1 AND waits_as = 'member'",
            self[name].uuid,
        )
        return dict(found)

    async def group(self, name: str) -> str:
        """`1/0/0/2 pending`: succeeded, failed, skipped, running and the state of a group."""
        row = await self.group_row(name)
        counts = (row[f"{which}_count"] for which in ("success", "fail", "skip", "running"))
        return f"{'/'.join(map(str, counts))} {row['group_state']}"

    async def edge(self, arrow: str) -> dict[str, Any]:
        up, down = arrow.split(">")
        [found] = await self.fetch(
            "SELECT * FROM ff.edge WHERE (upstream_eid, group_id) = ($1, $2)",
            self[up].uuid,
            member_group_id(self[down]).uuid,
        )
        return dict(found)

    async def payload(self, name: str) -> bytes:
        [found] = await self.fetch(
            "SELECT payload FROM ff.exec_body WHERE execution_id = $1", self[name].uuid
        )
        return found["payload"]

    async def told(self, name: str) -> list[str]:
        """The outcomes told of a member, in order."""
        async with self.engine.pool.connection() as conn:
            return await given.completion_events(conn, self[name])

    async def derived(self) -> str:
        """Where the flow stands, from its members."""
        found = await self.engine.describe_flow(self.flow_id)
        assert found is not None
        return found.derived_state.value

    async def count(self, table: str) -> int:
        """How many rows of this flow a table has."""
        [found] = await self.fetch(
            f"SELECT count(*) FROM ff.{table} WHERE flow_id = $1", self.flow_id
        )
        return found[0]


async def empty(engine: Engine, *names: str, flow_id: UUID | None = None, **fields: Any) -> Graph:
    """A flow without edges whose members were added one by one."""
    flow = uuid4() if flow_id is None else flow_id
    await engine.create_flow(flow, flow_kind="pipeline")
    return await Graph(engine, flow, {}).add(*names, **fields)


async def submitted(
    engine: Engine,
    arrows: str,
    *,
    policies: Mapping[str, JoinPolicy] | None = None,
    refs: Collection[str] = (),
    fields: Mapping[str, Mapping[str, Any]] | None = None,
    flow_id: UUID | None = None,
) -> Graph:
    """The flow that the arrows draw, submitted at once; `refs` are the arrows that pass data."""
    flow = uuid4() if flow_id is None else flow_id
    new = {name: member(flow, name, **(fields or {}).get(name, {})) for name in names_of(arrows)}
    ids = {name: each.execution_id for name, each in new.items()}
    await engine.submit_flow(
        NewFlow(
            flow_id=flow,
            flow_kind="pipeline",
            members=list(new.values()),
            edges=[
                NewEdge(
                    upstream=ids[up],
                    downstream=ids[down],
                    data_passing_ref="input" if f"{up}>{down}" in refs else None,
                )
                for up, down in edges_of(arrows)
            ],
            policies={ids[name]: policy for name, policy in (policies or {}).items()},
        )
    )
    return Graph(engine, flow, ids)


def fan_in(n: int, into: str = "d") -> str:
    """`u1>d u2>d …`."""
    return " ".join(f"u{number}>{into}" for number in range(1, n + 1))


async def done_or_waiting(db: Connection, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """`call`, started and seen to be done, or to wait for a lock that another one holds."""
    task = asyncio.create_task(call)
    async with asyncio.timeout(10):
        while not task.done() and not await db.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND cardinality(pg_blocking_pids(pid)) > 0)"
        ):
            pass
    return task


async def end_all(conn: Connection, executions: Sequence[ExecutionId], letter: str) -> None:
    """These end as the letter says, without a worker."""
    if executions:
        await terminalize(conn, executions, outcome=OUTCOMES[letter], reason="test")


async def end_leases(conn: Connection, ends: Mapping[Lease, str]) -> None:
    """The holders complete (S) or fail for good (F), in as few statements as possible."""
    done = [Completion(lease, b"1") for lease, letter in ends.items() if letter == "S"]
    lost = [
        Failure(lease=lease, reason="boom", category="permanent")
        for lease, letter in ends.items()
        if letter == "F"
    ]
    answers = [
        *(await complete(conn, done) if done else ()),
        *(await fail(conn, lost) if lost else ()),
    ]
    kinds = Counter(type(answer) for answer in answers)
    assert kinds == Counter({Completed: len(done), TerminalFailed: len(lost)}) - Counter(), kinds
