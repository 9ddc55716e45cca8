"""Upstreams that are not needed any more: listed once, cancelled once, however many sweeps look."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.cancel_siblings import AT_ONCE, cancel_siblings, pending_siblings
from flowfabric.engine.joins.reconcile_siblings import reconcile_siblings
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.errors import ExecutionNotActive
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.flows.graphs import Graph, fan_in, submitted


async def ticked(conn: Connection, limit: int = 50) -> int:
    async with conn.transaction():
        return await cancel_siblings(conn, limit)


async def race(engine: Engine, n: int = 3, policy: JoinPolicy | None = None) -> Graph:
    """A group of `n` that its first upstream has decided."""
    flow = await submitted(engine, fan_in(n), policies={"d": policy or AnyOf()})
    await flow.complete("u1")
    await flow.carry_all()
    return flow


async def listed(flow: Graph, name: str = "d") -> list[str]:
    members = (await flow.group_row(name))["cancel_siblings_pending_members"] or []
    return flow.named([ExecutionId(flow[name].partition_key, each) for each in members])


# Who is listed.


@pytest.mark.parametrize("policy", [AnyOf("let_run"), Quorum(1, "let_run")])
async def test_those_that_may_run_on_are_not_listed(ff_engine: Engine, policy: JoinPolicy) -> None:
    flow = await race(ff_engine, policy=policy)

    assert await listed(flow) == []
    assert await flow.count("pending_cancel_groups") == 0
    assert await flow.states() == "d:w u1:ok u2:w u3:w"


async def test_all_of_never_cancels(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, fan_in(3), policies={"d": AllOf()})
    await flow.fail("u1")
    await flow.carry_all()

    assert await flow.count("pending_cancel_groups") == 0
    assert await flow.tick() == 0
    assert await flow.states() == "d:k u1:f u2:w u3:w"


async def test_whatever_a_sibling_does_it_is_listed_until_it_has_ended(
    ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(
        ff_engine,
        f"{fan_in(6)} x>u5",
        policies={"d": AnyOf()},
        fields={"u3": {"delay": 60}},
    )
    await flow.claim("u2")
    await flow.fail("u4")
    await flow.complete("u6")
    await flow.complete("u1")

    await flow.carry()

    assert await listed(flow) == ["u2", "u3", "u5"]
    assert [await flow.tick() for _ in range(3)] == [1, 1, 0]
    assert await flow.states() == "d:w u1:ok u2:c u3:c u4:f u5:c u6:ok x:c"
    await flow.carry_all()


async def test_one_that_has_ended_but_was_not_dispatched_is_not_listed(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, fan_in(3), policies={"d": AnyOf()})
    await flow.complete("u1")
    await flow.fail("u2")

    assert await flow.carry(limit=1) == 1

    assert await listed(flow) == ["u3"]
    await flow.carry_all()
    assert await flow.group("d") == "1/1/0/1 satisfied"


async def test_nobody_left_to_cancel_lists_nothing(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, fan_in(2), policies={"d": AnyOf()})
    await flow.complete("u1", "u2")
    await flow.carry_all()

    assert await flow.count("pending_cancel_groups") == 0
    assert not (await flow.group_row("d"))["cancel_siblings_pending_flag"]


async def test_a_late_success_does_not_list_again(ff_engine: Engine) -> None:
    flow = await race(ff_engine, 4)
    await flow.tick()
    await flow.carry_all()
    row = await flow.group_row("d")

    assert not row["cancel_siblings_pending_flag"]
    assert row["cancel_siblings_reason"] == "sibling_quorum_satisfied"
    assert await flow.tick() == 0


# How they are cancelled.


async def test_a_sibling_that_runs_loses_its_lease(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, fan_in(2), policies={"d": AnyOf()})
    [lease] = await flow.claim("u2")
    await flow.complete("u1")
    await flow.carry_all()

    await flow.tick()

    row = await flow.row("u2")
    assert (row["cancellation_reason"], row["cancelled_by"]) == (
        "sibling_quorum_satisfied",
        "engine",
    )
    assert (row["terminal_outcome"], row["lease_epoch"]) == ("cancelled", lease.lease_epoch + 1)
    assert (await given.attempts(db, flow["u2"]))[-1]["outcome"] == "cancelled"
    assert (await given.lease_events(db, flow["u2"]))[-1] == ("revoked", "cancelled")
    assert await flow.told("u2") == ["cancelled"]
    [refused] = await ff_engine.complete([Completion(lease, b"late")])
    assert isinstance(refused, ExecutionNotActive)
    await flow.carry_all()
    assert await flow.group("d") == "1/1/0/0 satisfied"


async def test_one_that_ends_meanwhile_stays_as_it_is(ff_engine: Engine) -> None:
    flow = await race(ff_engine)
    await flow.complete("u2", result=b"too late, but done")

    assert await flow.tick() == 1

    assert await flow.states() == "d:w u1:ok u2:ok u3:c"
    assert await flow.told("u2") == ["success"]
    await flow.carry_all()
    assert await flow.group("d") == "2/1/0/0 satisfied"


async def test_a_group_that_needed_it_sees_a_failure(ff_engine: Engine) -> None:
    flow = await submitted(
        ff_engine, "u1>d u2>d u2>other x>other", policies={"d": AnyOf(), "other": AllOf()}
    )
    await flow.complete("u1")
    await ff_engine.dispatch()

    assert await flow.states() == "d:w other:k u1:ok u2:c x:w"
    assert await flow.group("other") == "0/1/0/1 impossible"


async def test_one_that_two_groups_have_done_with_is_cancelled_once(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(
        ff_engine,
        "a>p s>p b>q c>q s>q",
        policies={"p": AnyOf(), "q": Quorum(2)},
    )
    await flow.complete("a")
    await flow.fail("b", "c")
    await flow.carry()
    assert await listed(flow, "p") == ["s"]
    assert await listed(flow, "q") == ["s"]

    assert await flow.tick() == 2

    assert await flow.told("s") == ["cancelled"]
    assert (await flow.row("s"))["cancellation_reason"] in (
        "sibling_quorum_satisfied",
        "sibling_quorum_impossible",
    )
    assert await db.fetchval("SELECT count(*) FROM ff.pending_cancel_groups") == 0
    await flow.carry_all()
    assert await flow.group("p") == "1/1/0/0 satisfied"
    assert await flow.group("q") == "0/3/0/0 impossible"


async def test_at_most_so_many_groups_the_oldest_first(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flows = []
    for _ in range(3):
        flows.append(await race(ff_engine))
        await clock.advance(1)

    assert await ticked(db, limit=2) == 2

    assert [await flow.state("u2") for flow in flows] == ["cancelled", "cancelled", "waiting"]
    assert [await ticked(db, limit=2) for _ in range(2)] == [1, 0]
    await ff_engine.dispatch()


async def test_of_very_many_each_turn_takes_some(ff_engine: Engine) -> None:
    n = AT_ONCE + 10
    flow = await race(ff_engine, n + 1)

    assert [await flow.tick() for _ in range(2)] == [1, 1]

    [row] = await flow.fetch(
        "SELECT count(*) FROM ff.execution WHERE terminal_outcome = 'cancelled'"
    )
    assert row[0] == n
    assert await flow.tick() == 0
    assert await flow.count("pending_cancel_groups") == 0
    await flow.carry_all()
    assert await flow.group("d") == f"1/{n}/0/0 satisfied"


async def test_after_the_first_turn_the_rest_is_still_listed(ff_engine: Engine) -> None:
    flow = await race(ff_engine, AT_ONCE + 11)

    assert await flow.tick() == 1

    row = await flow.group_row("d")
    assert row["cancel_siblings_pending_flag"]
    assert len(row["cancel_siblings_pending_members"]) == 10
    assert await flow.count("pending_cancel_groups") == 1


# Several who look.


async def test_a_group_that_another_drains_is_passed_over(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow, other = await race(ff_engine), await race(ff_engine)
    first = await another()

    async with first.transaction():
        assert await cancel_siblings(first, limit=1) == 1
        assert await ticked(db) == 1
        assert await ticked(db) == 0

    for each in (flow, other):
        assert await each.told("u2") == await each.told("u3") == ["cancelled"]
    assert await db.fetchval("SELECT count(*) FROM ff.pending_cancel_groups") == 0


async def test_one_that_dies_leaves_it_to_the_next(db: Connection, ff_engine: Engine) -> None:
    flow = await race(ff_engine)
    before = await given.everything(db)
    dying = db.transaction()
    await dying.start()
    assert await cancel_siblings(db) == 1
    await dying.rollback()
    assert await given.everything(db) == before

    assert await flow.tick() == 1

    assert await flow.states() == "d:w u1:ok u2:c u3:c"


async def test_any_number_of_both_in_any_order_cancels_each_once(
    ff_engine: Engine, another: Another
) -> None:
    flows = [await race(ff_engine, 5) for _ in range(8)]
    conns = [await another() for _ in range(6)]

    async def look(conn: Connection, number: int) -> None:
        for _ in range(6):
            if number % 2:
                await reconcile_siblings(conn)
            else:
                await ticked(conn, limit=2)

    await asyncio.gather(*(look(conn, number) for number, conn in enumerate(conns)))

    for flow in flows:
        assert await flow.states() == "d:w u1:ok u2:c u3:c u4:c u5:c"
        assert await flow.count("pending_cancel_groups") == 0
        for number in range(2, 6):
            assert await flow.told(f"u{number}") == ["cancelled"]


async def test_the_reconciler_leaves_what_is_owed_to_the_dispatcher(
    db: Connection, ff_engine: Engine
) -> None:
    await race(ff_engine)
    before = await given.everything(db)

    assert await reconcile_siblings(db) == 0

    assert await given.everything(db) == before


async def test_the_reconciler_drops_what_is_owed_nothing(db: Connection, ff_engine: Engine) -> None:
    flow = await race(ff_engine)
    await flow.tick()
    for downstream in (flow["d"].uuid, flow["u1"].uuid):  # a flag that is down; no group at all
        await db.execute(
            "INSERT INTO ff.pending_cancel_groups VALUES ($1, $2, $3, 1)",
            flow["d"].partition_key,
            flow.flow_id,
            downstream,
        )
    assert await pending_siblings(db)

    assert await reconcile_siblings(db, limit=1) == 1
    assert [await reconcile_siblings(db) for _ in range(2)] == [1, 0]

    assert not await pending_siblings(db)


async def test_the_sweeps_cancel_them(
    ff_engine: Engine, clock: Clock, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    flow = await submitted(ff_engine, fan_in(3), policies={"d": AnyOf()})
    await flow.complete("u1")

    for _ in range(2):
        await ff_sweep()

    assert await flow.states() == "d:w u1:ok u2:c u3:c"
    assert await flow.group("d") == "1/2/0/0 satisfied"
