"""A running execution gets children, fenced by its lease, found again by their place."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.read_join import Join
from flowfabric.engine.joins.spawn_children import spawn_children
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotInFlow,
    FlowAlreadyTerminal,
    FlowFabricError,
    LaneNotAccepting,
    LeaseExpired,
    NonDeterministicReplay,
    NotFound,
    StaleLease,
    ValidationError,
)
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.policy import FixedBackoff
from flowfabric.states import GroupState, LaneState, TerminalOutcome
from flowfabric.testing import Clock
from tests import given
from tests.engine.flows.graphs import submitted
from tests.engine.joins import parents

Another = Callable[[], Awaitable[Connection]]


async def counts(family: parents.Family, flow_id: UUID | None = None) -> tuple[int, int, int]:
    """Members, edges and revision of the flow."""
    [row] = await family.fetch(
        "SELECT node_count, edge_count, graph_revision FROM ff.flow_core WHERE flow_id = $1",
        flow_id or family.flow_id,
    )
    return tuple(row)


# What is there afterwards.


async def test_parent_and_children_are_one_flow(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)

    wait = await family.spawn("abc", input_payload=b"1")

    assert wait == Join(
        group_state=GroupState.PENDING,
        policy=AllOf(),
        children=frozenset(family[name] for name in "abc"),
    )
    flow = await family.flow()
    assert (flow["flow_kind"], flow["public_flow_state"]) == ("children", "open")
    assert uuid_partition(family.flow_id) == family.parent.partition_key
    assert await counts(family) == (4, 3, 7)
    assert await family.states() == "a:w b:w c:w p:a"
    assert await family.waited() == "0/0/0/3 pending"
    group = await family.wait_row()
    assert (group["waiter_eid"], group["flow_id"]) == (family.parent.uuid, family.flow_id)
    assert await family.derived() == "running"


async def test_the_children_are_claimable_with_their_payload(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab", input_payload=b"hello", payload_encoding="raw")

    claimed = await claim(db, given.OTHER, ttl=30, limit=9)

    assert {each.lease.execution_id for each in claimed} == {family["a"], family["b"]}
    assert {each.flow_id for each in claimed} == {family.flow_id}
    assert {(each.input_payload, each.payload_encoding) for each in claimed} == {(b"hello", "raw")}


async def test_a_second_call_grows_the_same_flow(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")

    await family.spawn("cde", position=1, policy=AnyOf())

    assert await counts(family) == (6, 5, 11)
    assert await family.waited(1) == "0/0/0/3 pending"
    assert (await family.wait_row(1))["policy_kind"] == "any_of"


async def test_the_children_of_a_member_join_its_flow(ff_engine: Engine, db: Connection) -> None:
    graph = await submitted(ff_engine, "u>d x")
    [lease] = await graph.claim("u")
    family = parents.Family(ff_engine, lease)

    await family.spawn("ab")

    assert await counts(family, graph.flow_id) == (5, 3, 8)
    assert await family.count("flow_core") == 0
    assert (await family.row("a"))["flow_id"] == graph.flow_id
    assert (await family.wait_row())["flow_id"] == graph.flow_id


async def test_children_live_in_their_parents_namespace(ff_engine: Engine, db: Connection) -> None:
    execution_id = await given.created(db, namespace="shop")
    claimant = msgspec.structs.replace(given.WORKER, namespace="shop")
    [claimed] = await claim(db, claimant, ttl=30)
    assert claimed.lease.execution_id == execution_id
    family = parents.Family(ff_engine, claimed.lease)

    await family.spawn("a")
    [detached] = family.born("x", position=1)
    await ff_engine.spawn_children(family.lease, [detached], group=None)

    assert (await family.flow())["namespace"] == "shop"
    assert await ff_engine.get_execution_namespace(family["a"]) == "shop"
    assert await ff_engine.get_execution_namespace(family["x"]) == "shop"


async def test_a_detached_child_is_in_no_flow(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    children = family.born("ab")

    assert await ff_engine.spawn_children(family.lease, children, group=None) is None
    assert await ff_engine.spawn_children(family.lease, children, group=None) is None

    assert await db.fetchval("SELECT count(*) FROM ff.flow_core") == 0
    assert (await family.row("p"))["flow_id"] is None
    assert [(await family.row(name))["flow_id"] for name in "ab"] == [None, None]
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 3


async def test_a_finished_flow_is_looked_at_again(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("a")
    await db.execute("UPDATE ff.flow_summary SET public_flow_state = 'completed'")

    await family.spawn("b", position=1)

    assert await db.fetchval("SELECT public_flow_state FROM ff.flow_summary") == "open"


# Found again.


@pytest.mark.parametrize(
    "policy", [None, AnyOf(), AnyOf("let_run"), Quorum(2), Quorum(4, "let_run")], ids=str
)
async def test_the_same_wait_again_changes_nothing(
    ff_engine: Engine, db: Connection, policy: JoinPolicy | None
) -> None:
    family = await parents.parent(ff_engine, db)
    first = await family.spawn("abc", policy=policy)
    before = await given.everything(db)

    again = await family.spawn("abc", policy=policy)

    assert again == first
    assert await given.everything(db) == before


async def test_the_same_wait_again_tells_how_it_stands(ff_engine: Engine, db: Connection) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abc", policy=Quorum(2))
    await family.complete("c", "a")
    await family.settle()

    wait = await family.spawn("abc", policy=Quorum(2))

    assert wait.group_state is GroupState.SATISFIED
    assert wait.succeeded == (family["c"], family["a"])


async def test_a_later_attempt_finds_the_children_of_an_earlier_one(
    ff_engine: Engine, db: Connection
) -> None:
    at_once = given.retrying(3, backoff=FixedBackoff(delay=0))
    family = await parents.parent(ff_engine, db, policy=at_once)
    await family.spawn("ab")
    [_] = await ff_engine.fail([parents.failing(family.lease)])
    await family.complete("a")

    family.lease = next(
        each.lease
        for each in await claim(db, given.OTHER, ttl=30, limit=9)
        if each.lease.execution_id == family.parent
    )
    assert family.lease.attempt_index == 1
    await family.spawn("ab")

    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 3
    assert await counts(family) == (3, 2, 5)


@pytest.mark.parametrize(
    ("names", "fields"),
    [("ab", {}), ("abcd", {}), ("abc", {"policy": AnyOf()}), ("abc", {"execution_kind": "other"})],
    ids=["fewer", "more", "policy", "kind"],
)
async def test_another_call_at_the_same_place_is_noticed(
    ff_engine: Engine, db: Connection, names: str, fields: dict[str, Any]
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("abc")
    before = await given.everything(db)

    with pytest.raises(NonDeterministicReplay, match="3 children") as found:
        await family.spawn(names, **fields)

    assert found.value.execution_id == family.parent
    assert await given.everything(db) == before


# Children that were there before their wait.


@pytest.mark.parametrize("carried", [True, False])
async def test_a_child_that_has_ended_counts_at_once(
    ff_engine: Engine, db: Connection, carried: bool
) -> None:
    family = await parents.parent(ff_engine, db)
    first = family.born("ab")
    await family.spawn(first)
    await family.complete("a")
    if carried:
        await family.settle()

    wait = await family.spawn([first[0], *family.born("c", position=1)], position=1)

    assert wait.group_state is GroupState.PENDING
    assert await family.waited(1) == "1/0/0/1 pending"
    assert await counts(family) == (4, 4, 8)
    await family.complete("c")
    await family.settle()
    assert await family.read(1) == ("satisfied", ["a", "c"], [])


async def test_a_wait_for_children_that_have_all_ended_is_decided_at_once(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    children = family.born("ab")
    await family.spawn(children)
    await family.complete("a")
    await family.fail("b")

    wait = await family.spawn(children, position=1, policy=AnyOf("let_run"))

    assert (wait.group_state, wait.succeeded) == (GroupState.SATISFIED, (family["a"],))
    assert await family.state("p") == "active"


async def test_an_execution_outside_the_flow_is_nobodys_child(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    children = family.born("ab")
    await ff_engine.create_execution(children[:1])
    before = await given.everything(db)

    with pytest.raises(ExecutionNotInFlow) as found:
        await family.spawn(children)

    assert found.value.execution_id == family["a"]
    assert await given.everything(db) == before


# Refused, and nothing is written.


async def expired(family: parents.Family, db: Connection, clock: Clock) -> type[FlowFabricError]:
    await clock.advance(31)
    return LeaseExpired


async def superseded(family: parents.Family, db: Connection, clock: Clock) -> type[FlowFabricError]:
    await clock.advance(31)
    await expire_leases(db, 10)
    await claim(db, given.OTHER, ttl=30)
    return StaleLease


async def swept(family: parents.Family, db: Connection, clock: Clock) -> type[FlowFabricError]:
    await clock.advance(31)
    await expire_leases(db, 10)
    return ExecutionNotActive


async def ended(family: parents.Family, db: Connection, clock: Clock) -> type[FlowFabricError]:
    await complete(db, [Completion(family.lease)])
    return ExecutionNotActive


async def forged(family: parents.Family, db: Connection, clock: Clock) -> type[FlowFabricError]:
    family.lease = msgspec.structs.replace(family.lease, lease_id=uuid4())
    return StaleLease


LOST = pytest.mark.parametrize("lose", [expired, superseded, swept, ended, forged])


@LOST
@pytest.mark.parametrize("detached", [False, True], ids=["", "detached"])
async def test_without_its_lease_nobody_gets_children(
    ff_engine: Engine, db: Connection, clock: Clock, lose: Any, detached: bool
) -> None:
    family = await parents.parent(ff_engine, db)
    refusal = await lose(family, db, clock)
    before = await given.everything(db)

    with pytest.raises(refusal):
        await ff_engine.spawn_children(
            family.lease, family.born("ab"), group=None if detached else family.join()
        )

    assert await given.everything(db) == before


@LOST
async def test_without_its_lease_nobody_finds_its_children(
    ff_engine: Engine, db: Connection, clock: Clock, lose: Any
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    refusal = await lose(family, db, clock)
    before = await given.everything(db)

    with pytest.raises(refusal):
        await family.spawn("ab")

    assert await given.everything(db) == before


async def test_an_execution_that_is_not_there_has_no_children(
    ff_engine: Engine, db: Connection
) -> None:
    family = parents.Family(ff_engine, Lease(ExecutionId.mint(), 0, 1, uuid4()))

    with pytest.raises(NotFound):
        await family.spawn("a")


async def test_a_cancelled_flow_takes_no_children_but_knows_those_it_has(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    await ff_engine.cancel_flow(family.flow_id, policy="cancel_flow_only")
    before = await given.everything(db)

    with pytest.raises(FlowAlreadyTerminal):
        await family.spawn("c", position=1)
    assert await given.everything(db) == before
    assert (await family.spawn("ab")).group_state is GroupState.PENDING


async def test_a_lane_that_takes_nothing_new_takes_no_children(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    await ff_engine.register_lanes(["closed"], registered_by="ann")
    await ff_engine.set_lane_state("closed", LaneState.DRAINING, actor="ann")
    before = await given.everything(db)

    with pytest.raises(LaneNotAccepting):
        await family.spawn("ab", lane_id="closed")

    assert await given.everything(db) == before


async def test_children_are_checked_before_anything_is_written(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parents.parent(ff_engine, db)
    [child] = family.born("a")
    elsewhere = ExecutionId((family.parent.partition_key + 1) % 256, child.execution_id.uuid)
    before = await given.everything(db)

    for children, why in (
        ([], "at least one"),
        ([child, child], "none twice"),
        ([msgspec.structs.replace(child, execution_id=elsewhere)], "partition_mismatch"),
    ):
        with pytest.raises(ValidationError, match=why):
            await family.spawn(children)

    assert await given.everything(db) == before


# At once.


async def spawning(family: parents.Family, conn: Connection, position: int = 0) -> Join | None:
    async with conn.transaction():
        return await spawn_children(
            conn, family.lease, family.born("ab", position), group=family.join(position)
        )


@pytest.mark.parametrize("member", [False, True], ids=["solo", "member"])
async def test_the_same_call_twice_at_once_makes_the_children_once(
    ff_engine: Engine, db: Connection, another: Another, member: bool
) -> None:
    family = await parents.parent(ff_engine, db)
    position = 0
    if member:
        await family.spawn("x")
        position = 1
    first, second = await another(), await another()
    async with first.transaction():
        made = await spawn_children(
            first, family.lease, family.born("ab", position), group=family.join(position)
        )
        waiting = await given.blocked(db, second, spawning(family, second, position))

    assert await waiting == made
    assert await counts(family) == ((4, 3, 7) if member else (3, 2, 5))


async def test_a_parent_that_is_being_cancelled_gets_no_children(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    family = await parents.parent(ff_engine, db)
    first, second = await another(), await another()
    async with first.transaction():
        await terminalize(first, [family.parent], outcome=TerminalOutcome.CANCELLED, reason="no")
        waiting = await given.blocked(db, second, spawning(family, second))

    with pytest.raises(ExecutionNotActive):
        await waiting
    assert await db.fetchval("SELECT count(*) FROM ff.flow_core") == 0


async def test_many_parents_of_one_flow_get_children_at_once(
    ff_engine: Engine, db: Connection
) -> None:
    graph = await submitted(ff_engine, " ".join(f"m{number}" for number in range(8)))
    leases = await graph.claim(*[f"m{number}" for number in range(8)])

    async def grow(lease: Lease) -> None:
        family = parents.Family(ff_engine, lease)
        for position in range(3):
            await family.spawn("ab", position=position)

    await asyncio.gather(*[grow(lease) for lease in leases])

    assert await graph.revision() == 8 + 8 * 3 * 2 * 2
