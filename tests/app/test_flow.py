"""Graphs of calls: drawn in Python, run by workers, waited for by the clients that started them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from flowfabric import (
    AllOf,
    AnyOf,
    App,
    Client,
    Ctx,
    Fail,
    Flow,
    FlowCancelled,
    FlowFailed,
    FlowHandle,
    IdempotencyConflict,
    NotFound,
    Quorum,
    ResultTimeout,
    Retry,
    ValidationError,
)
from flowfabric.client.open_engine import on_database
from flowfabric.db.rows import Connection
from flowfabric.errors import CycleDetected, FlowAlreadyStarted, LaneNotAccepting
from flowfabric.joins import JoinPolicy
from flowfabric.states import DerivedFlowState, PublicState
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import Another
from tests.worker.facts import count, creating_transactions

app = App()


@app.task("add")
async def add(ctx: Ctx, a: int, b: int) -> int:
    return a + b


@app.task("double")
async def double(ctx: Ctx, n: int) -> int:
    return n * 2


@app.task("nothing")
async def nothing(ctx: Ctx) -> None:
    return None


@app.task("refuse")
async def refuse(ctx: Ctx, why: str) -> None:
    raise Fail(why, retryable=False)


@app.task("strict", retry=Retry(max_retries=3), timeout=30, deadline=90, max_reclaims=2, priority=3)
async def strict(ctx: Ctx) -> None:
    return None


@app.task("linger")
async def linger(ctx: Ctx) -> str:
    await asyncio.sleep(60)
    return "late"


async def work(dsn: str) -> None:
    """A worker, until nothing is left to do."""
    await app.worker(dsn=dsn, concurrency=20).run_until_idle()


# Drawing.


def test_members_are_called_after_their_tasks_or_as_they_are_named() -> None:
    flow = app.flow("sums")

    names = [flow.add(add.call(1, 2)).name for _ in range(3)]
    names.append(flow.add(add.call(1, 2), name="total").name)

    assert names == ["add", "add-2", "add-3", "total"]


def test_a_member_that_lacks_arguments_is_given_its_limit_key() -> None:
    limited = App()
    per_customer = limited.limit("per-customer", concurrency=1)

    @limited.task("bill", limit=per_customer, limit_key=lambda customer, total: customer)
    async def bill(ctx: Ctx, customer: str, total: int) -> None: ...

    flow = limited.flow("sums")
    with pytest.raises(ValidationError, match="limit_key of task 'bill' needs all arguments"):
        flow.add(bill.partial(customer="c"))
    with pytest.raises(ValidationError, match="limit_key 'c' needs a limit"):
        flow.add(add.call(1, 2), limit_key="c")
    total = flow.add(add.call(1, 2))
    flow.add(bill.partial(customer="c"), limit_key="c").after(total, feed="total")
    flow.add(bill.call("d", 1))

    built = flow.build(namespace="default", creator="me", partitions=256)
    assert [each.limit_key for each in built.members] == [None, "c", "d"]


def test_a_name_is_given_once() -> None:
    flow = app.flow("sums")
    flow.add(add.call(1, 2), name="total")

    with pytest.raises(ValidationError, match="total"):
        flow.add(add.call(1, 2), name="total")


def test_only_members_of_the_same_flow_can_be_waited_for() -> None:
    flow, other = app.flow("one"), app.flow("two")
    foreign = other.add(nothing.call())

    with pytest.raises(ValidationError, match="is not a member"):
        flow.add(nothing.call()).after(foreign)


def test_nobody_is_waited_for_twice() -> None:
    flow = app.flow("one")
    first = flow.add(nothing.call())
    second = flow.add(nothing.call(), name="second").after(first)

    with pytest.raises(ValidationError, match="already"):
        second.after(first)


def test_all_are_waited_for_unless_said_otherwise() -> None:
    flow = app.flow("one")
    first = flow.add(nothing.call())

    assert flow.add(nothing.call()).after(first).policy == AllOf()
    assert flow.add(nothing.call()).after(first, policy=Quorum(1)).policy == Quorum(1)


@pytest.mark.parametrize(
    ("first", "second"), [(None, AnyOf()), (Quorum(1), None), (Quorum(1), AnyOf("let_run"))]
)
def test_a_member_has_one_policy_for_all_its_upstreams(
    first: JoinPolicy | None, second: JoinPolicy | None
) -> None:
    flow = app.flow("mixed")
    a, b = flow.add(nothing.call(), name="a"), flow.add(nothing.call(), name="b")
    last = flow.add(nothing.call(), name="last").after(a, policy=first)

    with pytest.raises(ValidationError, match="'last' waits for 'a': a member has one policy"):
        last.after(b, policy=second)

    assert list(last.after(b, policy=first).upstreams) == ["a", "b"]


@all_cases(
    ("settings", "said"),
    [
        ({"delay": -1}, "delay -1 must not be negative"),
        ({"deadline": 0}, "deadline 0 must be positive"),
        ({"retry": 3}, "retry 3 must be a Retry"),
        ({"timeout": -1}, "timeout -1 must not be negative"),
        ({"priority": "high"}, "priority 'high' must be"),
        ({"tags": {"no dot": "x"}}, "no dot"),
        ({"lane": "x" * 500}, "lane"),
        ({"delay_until": datetime(2030, 1, 1)}, "delay_until"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_a_setting_that_is_not_valid_is_refused_when_the_member_is_added(
    settings: dict[str, Any], said: str
) -> None:
    flow = app.flow("one")

    with pytest.raises(ValidationError, match=said):
        flow.add(nothing.call(), **settings)

    assert flow.members == {}


async def test_a_member_has_settings_of_its_own_and_otherwise_those_of_its_task(
    client: Client, db: Connection
) -> None:
    flow = app.flow("settings")
    task = flow.add(strict.call(), name="task")
    own = flow.add(
        strict.call(),
        name="own",
        lane="slow",
        priority=7,
        delay=60,
        deadline=timedelta(hours=1),
        tags={"shop.part": "own"},
        retry=Retry(max_retries=9),
        timeout=5,
    ).after(task)
    flow.add(nothing.call(), name="plain", retry=Retry(max_retries=1))

    handle = await client.start(flow)

    described = await (await handle.member(own.name)).describe()
    assert (described.lane_id, described.priority) == ("slow", 7)
    assert described.tags == {"shop.part": "own"}
    rows = await db.fetch(
        "SELECT b.member_name, (b.policy #>> '{retry_policy,max_retries}')::int AS retries,"
        " (b.policy #>> '{timeout_policy,attempt_timeout_ms}')::int AS timeout_ms,"
        " b.policy ->> 'max_reclaim_count' AS reclaims, e.not_before_ms - e.created_at_ms AS delay,"
        " e.deadline_at_ms - e.created_at_ms AS deadline"
        " FROM ff.exec_body b JOIN ff.execution e USING (partition_key, execution_id) ORDER BY 1"
    )
    assert [tuple(row) for row in rows] == [
        ("own", 9, 5000, "2", 60_000, 3_600_000),
        ("plain", 1, None, None, None, None),
        ("task", 3, 30_000, "2", None, 90_000),
    ]


async def test_a_circle_is_refused_and_nothing_is_stored(client: Client) -> None:
    flow = app.flow("circle")
    first, second = flow.add(nothing.call(), name="a"), flow.add(nothing.call(), name="b")
    first.after(second)
    second.after(first)

    with pytest.raises(CycleDetected):
        await client.start(flow)

    assert (await on_database(client.engine).list_flows()).flows == []


async def test_a_quorum_of_more_than_there_are_is_refused(client: Client) -> None:
    flow = app.flow("too many")
    flow.add(nothing.call(), name="b").after(flow.add(nothing.call(), name="a"), policy=Quorum(2))

    with pytest.raises(ValidationError, match="k 2"):
        await client.start(flow)


# Running.


async def test_a_flow_runs_in_the_order_of_its_edges_and_gives_results_by_name(
    client: Client, ff_dsn: str
) -> None:
    flow = app.flow("sums")
    first = flow.add(add.call(1, 2), name="first")
    left = flow.add(double.call(4), name="left").after(first)
    right = flow.add(double.call(5), name="right").after(first)
    flow.add(nothing.call(), name="last").after(left, right)

    handle = await client.start(flow)
    assert handle.created
    assert await handle.state() is DerivedFlowState.BLOCKED
    await work(ff_dsn)

    assert await handle.result(10) == {"first": 3, "left": 8, "right": 10, "last": None}
    assert await handle.state() is DerivedFlowState.COMPLETED


async def test_a_member_can_be_fed_the_result_of_another(client: Client, ff_dsn: str) -> None:
    flow = app.flow("fed")
    source = flow.add(fed.call(20), name="source")
    flow.add(fed.call(0), name="target").after(source, feed=True)

    handle = await client.start(flow)
    await work(ff_dsn)

    assert await handle.result(10) == {"source": {"n": 21}, "target": {"n": 22}}


@app.task("fed")
async def fed(ctx: Ctx, n: int) -> dict[str, int]:
    return {"n": n + 1}


@app.task("total")
async def total(ctx: Ctx) -> dict[str, int]:
    return await ctx.upstreams()


@app.task("total in a thread")
def total_in_a_thread(ctx: Ctx) -> dict[str, int]:
    return ctx.sync.upstreams()


async def test_a_handler_sees_what_its_upstreams_returned_by_name(
    client: Client, ff_dsn: str
) -> None:
    flow = app.flow("named")
    parts = [flow.add(double.call(n), name=f"part-{n}") for n in (1, 2)]
    lost = flow.add(refuse.call("no"), name="lost")
    flow.add(total.call(), name="total").after(*parts, lost, policy=Quorum(2, "let_run"))
    flow.add(total_in_a_thread.call(), name="again").after(parts[0])

    handle = await client.start(flow)
    await work(ff_dsn)

    results = await handle.result(10)
    assert results["total"] == {"part-1": 2, "part-2": 4}
    assert results["again"] == {"part-1": 2}


async def test_an_execution_that_stands_alone_has_no_upstreams(client: Client, ff_dsn: str) -> None:
    handle = await client.submit(total.call())
    await work(ff_dsn)

    assert await handle.result(10) == {}


async def test_a_flow_without_members_is_refused(client: Client) -> None:
    with pytest.raises(ValidationError, match="members"):
        await client.start(app.flow("empty"))


async def test_a_failure_that_is_made_up_for_does_not_fail_the_flow(
    client: Client, ff_dsn: str
) -> None:
    flow = app.flow("either")
    bad = flow.add(refuse.call("no"), name="bad")
    good = flow.add(add.call(1, 1), name="good")
    flow.add(nothing.call(), name="then").after(bad, good, policy=AnyOf())

    handle = await client.start(flow)
    await work(ff_dsn)

    assert await handle.result(10) == {"good": 2, "then": None}


async def test_a_failure_skips_what_depends_on_it_and_fails_the_flow(
    client: Client, ff_dsn: str
) -> None:
    flow = app.flow("doomed")
    bad = flow.add(refuse.call("no money"), name="pay")
    flow.add(nothing.call(), name="ship").after(bad)

    handle = await client.start(flow)
    await work(ff_dsn)

    with pytest.raises(FlowFailed, match="pay: no money"):
        await handle.result(10)
    assert await (await handle.member("ship")).state() is PublicState.SKIPPED


async def test_losers_of_a_race_are_cancelled(client: Client, ff_dsn: str) -> None:
    flow = app.flow("race")
    quick, slow = flow.add(add.call(1, 1), name="quick"), flow.add(linger.call(), name="slow")
    flow.add(nothing.call(), name="then").after(quick, slow, policy=AnyOf())

    handle = await client.start(flow)
    async with app.worker(dsn=ff_dsn, lease_ttl=3):
        assert await handle.result(20) == {"quick": 2, "then": None}

    described = await (await handle.member("slow")).describe()
    assert described.cancellation_reason == "sibling_quorum_satisfied"


async def test_the_same_key_is_the_same_flow(client: Client) -> None:
    def flow(kind: str = "keyed", number: int = 1):
        made = app.flow(kind)
        made.add(add.call(number, 1))
        return made

    first = await client.start(flow(), idempotency_key="night")
    again = await client.start(flow(), idempotency_key="night")
    other = await client.start(flow(), idempotency_key="day")
    with pytest.raises(IdempotencyConflict, match="another kind and other members") as raised:
        await client.start(flow("other", 2), idempotency_key="night")
    returned = await client.start(flow("other", 2), idempotency_key="night", on_conflict="return")

    assert (first.created, again.created, other.created) == (True, False, True)
    assert first.flow_id == again.flow_id == returned.flow_id != other.flow_id
    [member] = await first.members()
    assert (raised.value.flow_id, raised.value.execution_id) == (
        first.flow_id,
        member.execution_id,
    )
    assert raised.value.differs == ("kind", "members")


async def test_a_flow_starts_once(client: Client, db: Connection) -> None:
    flow = pair()

    answers = await asyncio.gather(client.start(flow), client.start(flow), return_exceptions=True)
    with pytest.raises(FlowAlreadyStarted, match="draw a new Flow") as refused:
        await client.start(flow)
    with pytest.raises(FlowAlreadyStarted):
        flow.add(nothing.call())
    with pytest.raises(FlowAlreadyStarted):
        flow.members["a"].after(flow.members["b"])
    keyed = await client.start(flow, idempotency_key="another run")

    assert [type(each).__name__ for each in answers] == ["FlowHandle", "FlowAlreadyStarted"]
    assert refused.value.flow_id == flow.flow_id != keyed.flow_id
    assert await count(db) == 2 * 2


async def test_a_start_without_an_answer_can_be_repeated(client: Client, db: Connection) -> None:
    flow = pair()
    await on_database(client.engine).submit_flow(
        client.flow_of(flow, None)
    )  # committed; the answer was lost

    again = await client.start(flow)

    assert (again.flow_id, again.created) == (flow.flow_id, True)
    assert await count(db) == 2


async def test_a_start_that_was_refused_can_be_repeated(client: Client) -> None:
    flow = pair(lane="closed")
    await client.start(pair(lane="closed"))
    await client.admin.disable_lane("closed")
    with pytest.raises(LaneNotAccepting):
        await client.start(flow)

    await client.admin.resume_lane("closed")

    assert (await client.start(flow)).created


async def test_a_flow_that_was_rolled_back_can_start_again_but_not_after_the_commit(
    client: Client, db: Connection
) -> None:
    flow = pair()
    rolled_back = db.transaction()
    await rolled_back.start()
    await client.start(flow, conn=db)
    await rolled_back.rollback()

    async with db.transaction():
        handle = await client.start(flow, conn=db)
        with pytest.raises(FlowAlreadyStarted):
            await client.start(flow, conn=db)
    for conn in (db, None):
        with pytest.raises(FlowAlreadyStarted):
            await client.start(flow, conn=conn)

    assert handle.created
    assert await count(db) == 2


async def test_a_cancelled_flow_ends_its_members_and_says_so(client: Client) -> None:
    flow = app.flow("long")
    flow.add(nothing.call(), name="b").after(flow.add(nothing.call(), name="a"))
    handle = await client.start(flow)

    await handle.cancel("changed our mind")
    await handle.cancel("again")

    with pytest.raises(FlowCancelled, match="changed our mind"):
        await handle.result(5)
    assert {member.public_state for member in await handle.members()} == {PublicState.CANCELLED}


async def test_a_result_is_not_waited_for_longer_than_wanted(client: Client) -> None:
    flow = app.flow("idle")
    flow.add(nothing.call())
    handle = await client.start(flow)

    with pytest.raises(ResultTimeout):
        await handle.result(0.05)


async def test_a_flow_nobody_started_is_not_found(client: Client) -> None:
    with pytest.raises(NotFound, match="flow"):
        await client.flow(uuid4()).describe()
    with pytest.raises(ValidationError, match="flow_id"):
        client.flow("nonsense")


async def test_a_handle_finds_a_flow_started_elsewhere(client: Client) -> None:
    flow = app.flow("elsewhere", tags={"shop.tenant": "acme"})
    flow.add(nothing.call(), name="only")
    started = await client.start(flow)

    found = await client.flow(str(started.flow_id)).describe()

    assert (found.flow_kind, found.node_count, found.tags) == (
        "elsewhere",
        1,
        {"shop.tenant": "acme"},
    )


async def test_a_flow_of_ten_thousand_is_submitted_in_one_call(client: Client) -> None:
    flow = app.flow("wide")
    first = flow.add(nothing.call(), name="first")
    middle = [flow.add(nothing.call()).after(first) for _ in range(9_998)]
    flow.add(nothing.call(), name="last").after(*middle)

    handle = await client.start(flow)

    described = await handle.describe()
    assert (described.node_count, described.edge_count) == (10_000, 2 * 9_998)
    assert described.members.waiting_children == 9_999


# Starting many.


def pair(kind: str = "pair", lane: str | None = None) -> Flow:
    flow = app.flow(kind)
    flow.add(nothing.call(), name="b", lane=lane).after(flow.add(nothing.call(), name="a"))
    return flow


async def test_starts_at_the_same_time_share_their_transactions(
    client: Client, db: Connection
) -> None:
    handles = await asyncio.gather(*(client.start(pair()) for _ in range(32)))

    assert len({handle.flow_id for handle in handles}) == 32
    assert all(handle.created for handle in handles)
    assert await count(db) == 64
    assert await creating_transactions(db) <= 4


async def test_a_start_that_is_refused_does_not_spoil_the_others_of_its_time(
    client: Client, db: Connection
) -> None:
    await client.start(pair(lane="closed"))
    await client.admin.drain_lane("closed")
    circle = app.flow("circle")
    one, other = circle.add(nothing.call(), name="a"), circle.add(nothing.call(), name="b")
    other.after(one.after(other))
    flows = [pair(), pair(), circle, pair(), pair(lane="closed"), pair(), app.flow("empty")]

    answers = await asyncio.gather(*map(client.start, flows), return_exceptions=True)

    assert [type(answer).__name__ for answer in answers] == [
        "FlowHandle",
        "FlowHandle",
        "CycleDetected",
        "FlowHandle",
        "LaneNotAccepting",
        "FlowHandle",
        "ValidationError",
    ]
    assert await count(db) == 2 + 4 * 2


async def test_a_large_flow_goes_alone(client: Client, db: Connection) -> None:
    large = app.flow("large")
    for _ in range(2_500):
        large.add(nothing.call())

    handles = await asyncio.gather(*map(client.start, [pair(), pair(), large, pair()]))

    assert [len(await handle.members()) for handle in handles] == [2, 2, 2500, 2]


async def test_the_same_key_at_the_same_time_is_the_same_flow(
    client: Client, db: Connection
) -> None:
    handles = await asyncio.gather(
        *(client.start(pair(), idempotency_key="night") for _ in range(10))
    )

    assert len({handle.flow_id for handle in handles}) == 1
    assert sum(handle.created for handle in handles) == 1
    assert await count(db) == 2


async def test_another_flow_with_the_same_key_at_the_same_time_is_a_conflict(
    client: Client, db: Connection, another: Another
) -> None:
    mine, theirs = app.flow("mine"), app.flow("theirs")
    mine.add(nothing.call())
    theirs.add(nothing.call())
    first, second = await another(), await another()
    async with first.transaction():
        await client.start(mine, idempotency_key="k", conn=first)
        start = client.start(theirs, idempotency_key="k", conn=second)
        waiting = await given.blocked(db, second, start)

    with pytest.raises(IdempotencyConflict, match="another kind"):
        await waiting
    answers = await asyncio.gather(
        client.start(mine, idempotency_key="both"),
        client.start(theirs, idempotency_key="both"),
        client.start(mine, idempotency_key="k"),
        return_exceptions=True,
    )
    assert [type(each) for each in answers] == [FlowHandle, IdempotencyConflict, FlowHandle]
