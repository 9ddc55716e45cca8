"""What a cancelled flow owes its members is paid in batches, with the acks."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.ack_cancel_member import ack_cancel_member
from flowfabric.engine.flows.end_cancelled_members import end_cancelled_members
from flowfabric.engine.flows.reconcile_cancels import cancel_backlog_due, reconcile_cancels
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.reconcile.sweeps import SWEEPS
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.flows.graphs import Graph, minted, submitted


async def headed(engine: Engine, arrows: str = "a>b c", grace: float = 30) -> Graph:
    """A flow that is cancelled; nobody has ended yet."""
    flow = await submitted(engine, arrows)
    await engine.cancel_flow_header(flow.flow_id, reason="enough", grace=grace)
    return flow


async def ended(conn: Connection, flow: Graph, limit: int = 500) -> int:
    async with conn.transaction():
        return await end_cancelled_members(conn, flow.flow_id, limit=limit)


async def reconciled(conn: Connection, limit: int = 50) -> int:
    async with conn.transaction():
        return await reconcile_cancels(conn, limit)


async def listed(flow: Graph) -> list[str]:
    rows = await flow.fetch("SELECT execution_id FROM ff.cancel_backlog_member")
    uuids = {row["execution_id"] for row in rows}
    return sorted(name for name, each in flow.ids.items() if each.uuid in uuids)


async def test_each_call_ends_and_acks_some(db: Connection, ff_engine: Engine) -> None:
    flow = await headed(ff_engine)

    assert await ended(db, flow, limit=2) == 2
    assert await flow.states() == "a:c b:c c:w"
    assert await listed(flow) == ["c"]
    assert await flow.count("cancel_backlog") == 1

    assert await ended(db, flow, limit=2) == 1
    assert await flow.states() == "a:c b:c c:c"
    assert await flow.count("cancel_backlog") == 0

    assert await ended(db, flow) == 0


async def test_a_flow_that_owes_nothing_or_is_not_there(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a")
    before = await given.everything(db)

    assert await ended(db, flow) == 0
    async with db.transaction():
        assert await end_cancelled_members(db, uuid4()) == 0

    assert await given.everything(db) == before


async def test_one_that_has_ended_meanwhile_is_acked_as_it_is(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a b c")
    await flow.claim("a", "b")
    await ff_engine.cancel_flow_header(flow.flow_id)
    await flow.complete("a")
    await cancel_execution(db, flow["c"], reason="by hand")

    assert await ended(db, flow) == 3

    assert await flow.states() == "a:ok b:c c:c"
    assert (await flow.row("c"))["cancellation_reason"] == "by hand"
    for name, outcome in (("a", "success"), ("b", "cancelled"), ("c", "cancelled")):
        assert await flow.told(name) == [outcome]


async def test_one_that_is_gone_is_acked(db: Connection, ff_engine: Engine) -> None:
    flow = await headed(ff_engine, "a b")
    await db.execute(
        "UPDATE ff.cancel_backlog_member SET execution_id = gen_random_uuid()"
        " WHERE execution_id = $1",
        flow["a"].uuid,
    )

    assert await ended(db, flow) == 2

    assert await flow.count("cancel_backlog") == 0
    assert await flow.states() == "a:w b:c"


async def test_two_at_once_end_each_once(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await headed(ff_engine)
    first, second = await another(), await another()

    async with first.transaction():
        assert await end_cancelled_members(first, flow.flow_id, limit=2) == 2
        waiting = await given.blocked(db, second, ended(second, flow))
    assert await waiting == 1

    for name in "abc":
        assert await flow.told(name) == ["cancelled"]
    assert await flow.count("cancel_backlog") == 0


async def test_one_that_dies_has_done_nothing(db: Connection, ff_engine: Engine) -> None:
    flow = await headed(ff_engine)
    before = await given.everything(db)
    dying = db.transaction()
    await dying.start()
    assert await end_cancelled_members(db, flow.flow_id) == 3
    await dying.rollback()

    assert await given.everything(db) == before
    assert await ended(db, flow) == 3


# Acks one by one.


async def test_an_ack_removes_the_member_and_the_last_one_the_backlog(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await headed(ff_engine)
    for name in "abc":
        await cancel_execution(db, flow[name], reason="enough")

    await ff_engine.ack_cancel_member(flow.flow_id, flow["b"])
    assert await listed(flow) == ["a", "c"]
    await ff_engine.ack_cancel_member(flow.flow_id, flow["a"])
    assert await flow.count("cancel_backlog") == 1
    await ff_engine.ack_cancel_member(flow.flow_id, flow["c"])

    assert await flow.count("cancel_backlog") == await flow.count("cancel_backlog_member") == 0


async def test_an_ack_of_nothing_does_nothing(db: Connection, ff_engine: Engine) -> None:
    flow = await headed(ff_engine)
    before = await given.everything(db)

    await ff_engine.ack_cancel_member(flow.flow_id, minted(flow.flow_id))
    await ff_engine.ack_cancel_member(unknown := uuid4(), minted(unknown))

    assert await given.everything(db) == before


async def test_acks_at_once_leave_no_header_behind(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await headed(ff_engine, "a b")
    for name in "ab":
        await cancel_execution(db, flow[name], reason="enough")
    first, second = await another(), await another()

    async def ack_second() -> None:
        async with second.transaction():
            await ack_cancel_member(second, flow.flow_id, flow["b"])

    async with first.transaction():
        await ack_cancel_member(first, flow.flow_id, flow["a"])
        acking = await given.blocked(db, second, ack_second())
    await acking

    assert await flow.count("cancel_backlog") == await flow.count("cancel_backlog_member") == 0


# The reconciler.


async def test_it_waits_until_the_grace_is_over(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await headed(ff_engine, grace=7)
    await clock.advance(6.999)
    assert not await cancel_backlog_due(db)
    assert await reconciled(db) == 0
    await clock.advance(0.001)

    assert await cancel_backlog_due(db)
    assert [await reconciled(db) for _ in range(2)] == [1, 0]

    assert await flow.states() == "a:c b:c c:c"
    row = await flow.row("a")
    assert (row["cancellation_reason"], row["cancelled_by"]) == ("enough", "cancel_flow")
    assert not await cancel_backlog_due(db)


async def test_at_most_so_many_flows_the_longest_overdue_first(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flows = [await headed(ff_engine, "a", grace=grace) for grace in (3, 1, 2)]
    await clock.advance(5)

    assert await reconciled(db, limit=2) == 2

    assert [await flow.states() for flow in flows] == ["a:w", "a:c", "a:c"]
    assert [await reconciled(db, limit=2) for _ in range(2)] == [1, 0]


async def test_a_flow_that_another_reconciles_is_passed_over(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flows = [await headed(ff_engine, "a", grace=0) for _ in range(2)]
    first = await another()
    async with first.transaction():
        assert await reconcile_cancels(first, limit=1) == 1
        assert await reconciled(db) == 1

    for flow in flows:
        assert await flow.told("a") == ["cancelled"]


async def test_a_backlog_that_owes_nobody_is_removed(db: Connection, ff_engine: Engine) -> None:
    flow = await headed(ff_engine, "a", grace=0)
    await cancel_execution(db, flow["a"], reason="by hand")
    await db.execute("DELETE FROM ff.cancel_backlog_member")

    assert await reconciled(db) == 1

    assert await flow.count("cancel_backlog") == 0


async def test_a_large_flow_takes_several_turns(db: Connection, ff_engine: Engine) -> None:
    flow = await headed(ff_engine, " ".join(f"m{number}" for number in range(700)), grace=0)

    assert [await reconciled(db) for _ in range(3)] == [1, 1, 0]

    assert await flow.count("cancel_backlog") == 0
    assert await db.fetchval("SELECT count(*) FROM ff.completion_event") == 700


async def test_the_sweep_finishes_what_was_left(
    ff_engine: Engine, clock: Clock, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    flow = await headed(ff_engine, grace=1)
    await clock.advance(1)

    await ff_sweep()

    assert await flow.states() == "a:c b:c c:c"
    assert [sweep.every for sweep in SWEEPS if sweep.step is reconcile_cancels] == [15.0]
