"""The members of a flow that wait for others end by one statement, unless somebody uses them."""

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.end_blocked_members import end_blocked_members
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from tests.engine.controls import Another
from tests.engine.flows.graphs import Graph, submitted


async def ended(conn: Connection, flow: Graph, limit: int = 10) -> str:
    home = next(iter(flow.ids.values())).partition_key
    found = await end_blocked_members(
        conn, home, flow.flow_id, reason="no longer wanted", by="cancel_flow", limit=limit
    )
    return " ".join(sorted(name for name, each in flow.ids.items() if each in found))


async def test_those_that_wait_for_others_end_and_the_rest_stays(
    ff_engine: Engine, db: Connection
) -> None:
    flow = await submitted(ff_engine, "a>b b>c d")
    await flow.claim("d")

    assert await ended(db, flow) == "b c"
    assert await flow.states() == "a:w b:c c:c d:a"
    assert await flow.told("b") == ["cancelled"]
    row = await flow.row("b")
    assert (row["cancellation_reason"], row["cancelled_by"]) == ("no longer wanted", "cancel_flow")

    assert await ended(db, flow) == ""
    assert await flow.told("b") == ["cancelled"]


async def test_one_that_is_locked_is_passed_over(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>b a>c")
    holder = await another()
    async with holder.transaction():
        await lock_executions(holder, [flow["b"]])

        assert await ended(db, flow) == "c"

    assert await ended(db, flow) == "b"


async def test_none_ends_if_more_are_left_than_the_limit(ff_engine: Engine, db: Connection) -> None:
    flow = await submitted(ff_engine, "a>b c")

    assert await ended(db, flow, limit=2) == ""
    assert await ended(db, flow, limit=3) == "b"
