"""The look at the invariants itself: what is broken is found."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.joins import AnyOf
from tests.engine.flows.graphs import Graph, submitted
from tests.engine.joins.invariants import BROKEN, broken_invariants

BREAKS = {
    "UPDATE ff.flow_core SET node_count = node_count - 1, graph_revision = graph_revision - 1": 0,
    "UPDATE ff.flow_core SET edge_count = edge_count + 1, graph_revision = graph_revision + 1": 0,
    "DELETE FROM ff.flow_core": 1,
    "UPDATE ff.edge_group SET success_count = success_count + 1, running_count = running_count - 1"
    " WHERE running_count > 0": 2,
    "DELETE FROM ff.edge_group": 3,
    "UPDATE ff.edge SET resolved_event_id = 0 WHERE resolution <> 'unresolved'": 4,
    "UPDATE ff.edge SET min_event_id = 1 << 30": 4,
    "UPDATE ff.edge SET resolved_outcome = 'failed' WHERE resolution = 'satisfied'": 5,
    "UPDATE ff.edge SET resolution = 'unresolved', resolved_outcome = NULL": 6,
    "UPDATE ff.edge_group SET group_state = 'satisfied', fired_at_ms = 1": 7,
    "UPDATE ff.exec_core SET eligibility_state = 'eligible_now'"
    " WHERE eligibility_state = 'blocked_by_dependencies'": 8,
    "DELETE FROM ff.completion_event": 9,
    "UPDATE ff.completion_event SET outcome = 'expired'": 10,
    "DELETE FROM ff.pending_cancel_groups": 11,
    "UPDATE ff.edge_group SET cancel_siblings_pending_members = NULL": 11,
    "INSERT INTO ff.cancel_backlog_member SELECT partition_key, flow_id, gen_random_uuid()"
    " FROM ff.flow_core": 12,
    "UPDATE ff.exec_core SET eligibility_state = 'blocked_by_operator',"
    " blocking_reason = 'paused_by_flow_cancel' WHERE lifecycle_phase = 'runnable'": 13,
}


async def in_motion(engine: Engine) -> Graph:
    """A flow with a bit of everything."""
    flow = await submitted(engine, "a>d b>d c>d d>e c>f", policies={"d": AnyOf()})
    await flow.complete("a")
    await flow.carry_all()
    return flow


@pytest.mark.parametrize(("change", "number"), BREAKS.items())
async def test_what_is_broken_is_found(
    db: Connection, ff_engine: Engine, change: str, number: int
) -> None:
    await in_motion(ff_engine)
    trial = db.transaction(isolation="repeatable_read")
    await trial.start()
    try:
        assert await broken_invariants(db) == {}
        await db.execute(change)
        broken = await broken_invariants(db)
    finally:
        await trial.rollback()

    assert list(BROKEN)[number] in broken


async def test_a_group_that_stands_otherwise_than_it_counts_is_found(
    db: Connection, ff_engine: Engine
) -> None:
    await in_motion(ff_engine)
    trial = db.transaction(isolation="repeatable_read")
    await trial.start()
    try:
        await db.execute(
            "UPDATE ff.edge_group SET group_state = 'impossible', fired_at_ms = 1"
            " WHERE group_state = 'pending'"
        )
        broken = await broken_invariants(db)
    finally:
        await trial.rollback()

    assert "a group stands as its counters say" in broken
