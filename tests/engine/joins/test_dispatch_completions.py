"""Completions are dispatched along edges: each once, by any process and however often."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.steps import COMMIT, stepped
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.dispatch_completions import dispatch_completions, undispatched
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import ExecutionNotActive
from flowfabric.joins import AnyOf, Quorum
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another, execution
from tests.engine.flows.graphs import Graph, empty, end_all, fan_in, submitted


async def dispatched(conn: Connection, limit: int = 256) -> int:
    async with conn.transaction():
        return await dispatch_completions(conn, limit)


# Exactly once.


async def test_a_second_dispatch_finds_nothing(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")
    await flow.complete("a")
    assert await undispatched(db)
    assert await dispatched(db) == 1
    before = await given.everything(db)

    assert not await undispatched(db)
    assert await dispatched(db) == 0

    assert await given.everything(db) == before


async def test_an_end_without_edges_is_marked(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a")
    await flow.complete("a")

    assert await dispatched(db) == 1

    [event] = await db.fetch("SELECT dispatched_at_ms FROM ff.completion_event")
    assert event["dispatched_at_ms"] == await clock.now_ms()


async def test_the_end_of_one_that_stands_alone_is_nobodys_concern(
    db: Connection, ff_engine: Engine
) -> None:
    await execution(db, "completed")
    before = await given.everything(db)

    assert not await undispatched(db)
    assert await ff_engine.dispatch() == 0

    assert await given.everything(db) == before


async def test_at_most_so_many_the_oldest_first(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>x b>y c>z")
    for name in "cab":
        await flow.complete(name)

    assert await dispatched(db, limit=2) == 2

    assert await flow.states() == "a:ok b:ok c:ok x:w y:wc z:w"
    assert [await dispatched(db, limit=2) for _ in range(2)] == [1, 0]


async def test_never_more_than_256_at_a_time(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, fan_in(300))
    await end_all(db, [flow[f"u{number}"] for number in range(1, 301)], "S")

    assert [await dispatched(db, limit=10_000) for _ in range(3)] == [256, 44, 0]

    assert await flow.group("d") == "300/0/0/0 satisfied"


async def test_two_dispatchers_share_what_there_is(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>x b>y")
    await flow.complete("a", "b")
    first, second = await another(), await another()

    async with first.transaction():
        assert await dispatch_completions(first, limit=1) == 1
        assert await dispatched(second) == 1
        assert await flow.states() == "a:ok b:ok x:wc y:w"

    assert await flow.states() == "a:ok b:ok x:w y:w"
    assert await dispatched(db) == 0


async def test_two_dispatchers_of_one_group_count_both(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>d b>d")
    await flow.complete("a", "b")
    first, second = await another(), await another()

    async with first.transaction():
        assert await dispatch_completions(first, limit=1) == 1
        waiting = await given.blocked(db, second, dispatched(second))
    assert await waiting == 1

    assert await flow.group("d") == "2/0/0/0 satisfied"
    assert await flow.states() == "a:ok b:ok d:w"


async def test_a_dispatcher_that_rolls_back_leaves_it_to_the_next(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>d b>d")
    await flow.complete("a", "b")
    first, second = await another(), await another()
    dying = first.transaction()
    await dying.start()
    assert await dispatch_completions(first, limit=1) == 1
    waiting = await given.blocked(db, second, dispatched(second))

    await dying.rollback()

    assert await waiting == 1
    assert await flow.group("d") == "1/0/0/1 pending"
    assert await dispatched(db) == 1
    assert await flow.group("d") == "2/0/0/0 satisfied"


async def test_many_dispatchers_of_a_crossed_graph_do_not_get_in_each_others_way(
    ff_engine: Engine, another: Another
) -> None:
    """Everybody leads to everybody, so that every batch locks every group."""
    ups, downs = [f"u{i}" for i in range(40)], [f"d{i}" for i in range(20)]
    flow = await submitted(ff_engine, " ".join(f"{up}>{down}" for up in ups for down in downs))
    carriers = [await another() for _ in range(6)]
    await end_all(carriers[0], [flow[up] for up in ups], "S")

    async def carry(conn: Connection) -> int:
        total = 0
        while moved := await dispatched(conn, limit=3):
            total += moved
        return total

    assert sum(await asyncio.gather(*(carry(conn) for conn in carriers))) == 40
    for down in downs:
        assert await flow.group(down) == "40/0/0/0 satisfied"


# What an end does.


async def test_a_failure_that_is_retried_is_no_end(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d", fields={"a": {"policy": given.retrying(1)}})
    [lease] = await flow.claim("a")
    await ff_engine.fail([Failure(lease=lease, reason="boom")])

    assert await ff_engine.dispatch() == 0

    assert await flow.group("d") == "0/0/0/1 pending"


async def test_a_skip_goes_down_the_whole_chain(ff_engine: Engine) -> None:
    names = [f"m{number:03}" for number in range(120)]
    arrows = " ".join(f"{names[i]}>{names[i + 1]}" for i in range(len(names) - 1))
    flow = await submitted(ff_engine, arrows)
    await flow.fail(names[0])

    assert await ff_engine.dispatch() == 120

    assert (await flow.states()).split() == [f"{names[0]}:f", *(f"{name}:k" for name in names[1:])]


async def test_a_skipped_member_says_why(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.fail("a")
    await flow.carry_all()

    row = await flow.row("d")
    assert await given.vector(db, flow["d"]) == (
        "terminal",
        "not_applicable",
        "none",
        "skipped",
        "pending_first_attempt",
        "skipped",
    )
    assert row["failure_reason"] == "dependency_impossible"
    assert await given.attempts(db, flow["d"]) == []
    assert await given.lease_events(db, flow["d"]) == []


async def test_who_needs_only_one_absorbs_a_skip(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b b>d c>d d>e", policies={"d": AnyOf()})
    await flow.fail("a")
    await flow.carry_all()
    assert await flow.states() == "a:f b:k c:w d:wc e:wc"
    assert await flow.group("d") == "0/0/1/1 pending"

    await flow.complete("c")
    await flow.carry_all()

    assert await flow.states() == "a:f b:k c:ok d:w e:wc"


async def test_a_decided_group_only_counts(ff_engine: Engine, clock: Clock) -> None:
    flow = await submitted(ff_engine, fan_in(4), policies={"d": Quorum(2, "let_run")})
    await flow.complete("u1", "u2")
    await flow.carry_all()
    fired = (await flow.group_row("d"))["fired_at_ms"]
    await flow.complete("d")
    before = await flow.row("d")
    await clock.advance(5)

    await flow.complete("u3")
    await flow.fail("u4")
    await flow.carry_all()

    assert await flow.group("d") == "3/1/0/0 satisfied"
    assert (await flow.group_row("d"))["fired_at_ms"] == fired
    assert await flow.row("d") == before
    assert await flow.told("d") == ["success"]


async def test_an_end_before_a_replay_does_not_count_whenever_it_is_dispatched(
    ff_engine: Engine,
) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.fail("a")
    await flow.replay("a")
    await flow.complete("a")

    await flow.carry_all()

    assert await flow.group("d") == "1/0/0/0 satisfied"
    assert await flow.states() == "a:ok d:w"


# Where the downstream stands when its group is decided.


async def test_a_downstream_that_is_held_back_by_others_is_left_alone(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.claim("d")
    await flow.link("a>d")
    lease = flow.leases.pop("d")
    await ff_engine.release([lease])
    await block_execution_for_admission(db, flow["d"], "waiting_for_budget")
    before = await flow.row("d")
    await flow.complete("a")

    await flow.carry_all()

    assert await flow.group("d") == "1/0/0/0 satisfied"
    assert await flow.row("d") == before


async def test_one_that_runs_is_not_promoted(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.claim("d")
    await flow.link("a>d")
    before = await flow.row("d")
    await flow.complete("a")

    await flow.carry_all()

    assert await flow.row("d") == before
    await flow.complete("d")


async def test_one_that_runs_though_it_cannot_is_stopped(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    [lease] = await flow.claim("d")
    await flow.link("a>d")
    await flow.fail("a")

    await flow.carry_all()

    assert await flow.states() == "a:f d:k"
    assert await flow.told("d") == ["skipped"]
    assert [kind for kind, _ in await given.lease_events(db, flow["d"])] == ["acquired", "revoked"]
    [refused] = await ff_engine.complete([Completion(lease, b"late")])
    assert isinstance(refused, ExecutionNotActive)


@pytest.mark.parametrize("way", ["skipped", "expired", "cancelled"])
async def test_a_delayed_member_that_waits_can_end(
    db: Connection, ff_engine: Engine, clock: Clock, way: str
) -> None:
    flow = await submitted(ff_engine, "a>d", fields={"d": {"delay": 60, "deadline": 30}})
    match way:
        case "skipped":
            await flow.fail("a")
            await ff_engine.dispatch()
        case "expired":
            await clock.advance(31)
            await expire_executions(db, limit=10)
        case _:
            await cancel_execution(db, flow["d"], reason="no")

    assert await flow.state("d") == way
    await ff_engine.dispatch()


async def test_a_member_that_is_delayed_again_keeps_its_own_time(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>d", fields={"d": {"delay": 60}})
    await flow.complete("a")
    await flow.carry_all()
    assert await flow.states() == "a:ok d:d"
    await clock.advance(60)
    assert await promote_due(db, limit=10) == 1

    await flow.complete("d")
    await flow.carry_all()


# Those who carry.


async def test_the_sweep_carries_what_was_left(
    ff_engine: Engine, clock: Clock, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    flow = await submitted(ff_engine, "a>b b>c x>y")
    await flow.fail("a")
    await flow.complete("x")

    for _ in range(3):
        await ff_sweep()

    assert await flow.states() == "a:f b:k c:k x:ok y:w"


async def crossing_races(engine: Engine, number: int) -> Graph:
    """So many races of two, each won by its first."""
    arrows = " ".join(f"a{i}>g{i} b{i}>g{i}" for i in range(number))
    flow = await submitted(engine, arrows, policies={f"g{i}": AnyOf() for i in range(number)})
    await flow.transact(lambda conn: end_all(conn, [flow[f"a{i}"] for i in range(number)], "S"))
    return flow


@pytest.mark.parametrize("number", [5, 60])
async def test_the_engine_carries_everything_and_cancels_who_is_not_needed(
    ff_engine: Engine, number: int
) -> None:
    flow = await crossing_races(ff_engine, number)

    assert await ff_engine.dispatch() == 2 * number

    ended = {name: f"{name}:{'ok' if name[0] == 'a' else 'c'}" for name in flow.ids}
    assert await flow.states() == " ".join(
        f"{name}:w" if name[0] == "g" else ended[name] for name in sorted(flow.ids)
    )
    assert await ff_engine.dispatch() == 0


async def test_a_wide_join_is_carried_quickly_though_the_planner_believes_that_nothing_is_there(
    ff_engine: Engine, db: Connection
) -> None:
    """Retention had emptied the tables when their statistics were taken: 30 s and more before."""
    small = await submitted(ff_engine, "a>b c>b")
    await small.complete("a", "c")
    await small.carry_all()
    await db.execute(
        "DELETE FROM ff.edge; DELETE FROM ff.edge_group; DELETE FROM ff.exec_core;"
        " DELETE FROM ff.flow_core; DELETE FROM ff.completion_event;"
        " ANALYZE ff.edge, ff.edge_group, ff.exec_core, ff.completion_event"
    )
    wide = await submitted(ff_engine, fan_in(600))
    ends = [each for name, each in wide.ids.items() if name != "d"]
    await wide.transact(lambda conn: end_all(conn, ends, "S"))

    async with asyncio.timeout(5):
        await wide.carry_all()

    assert await wide.group("d") == "600/0/0/0 satisfied"


@pytest.mark.parametrize(
    ("end", "transactions", "states"), [("S", 1, "a:ok b:w c:wc"), ("F", 3, "a:f b:k c:k")]
)
async def test_a_dispatch_looks_again_only_for_completions_that_it_has_caused(
    ff_engine: Engine, end: str, transactions: int, states: str
) -> None:
    flow = await submitted(ff_engine, "a>b b>c")
    await flow.end("a", end)
    commits: list[str] = []

    async def step(_: Connection, statement: str) -> None:
        if statement == COMMIT:
            commits.append(statement)

    with stepped(step):
        await ff_engine.dispatch()

    assert (len(commits), await flow.states()) == (transactions, states)
