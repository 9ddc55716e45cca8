"""The worked examples of flows.md section 13, step by step."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.errors import CycleDetected
from flowfabric.ids import new_uuid
from flowfabric.joins import AnyOf, Quorum
from flowfabric.testing import Clock
from tests import given
from tests.engine.flows.graphs import Graph, empty, fan_in, submitted


async def listed(flow: Graph, name: str) -> tuple[bool, str | None, list[str], int]:
    """What is queued of a group: flag, reason, members, and rows of the queue."""
    row = await flow.group_row(name)
    members = row["cancel_siblings_pending_members"] or []
    return (
        row["cancel_siblings_pending_flag"],
        row["cancel_siblings_reason"],
        [one for one, each in sorted(flow.ids.items()) if each.uuid in members],
        await flow.count("pending_cancel_groups"),
    )


async def test_e1_a_chain_with_data(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "A")
    await flow.add("B", "C", input_payload=b"own")
    assert await flow.revision() == 3
    await flow.stage("A>B", ref="input")
    assert await flow.revision() == 4
    await flow.stage("B>C")
    assert await flow.revision() == 5
    with pytest.raises(CycleDetected):
        await ff_engine.stage_dependency_edge(
            flow.flow_id, new_uuid(), flow["C"], flow["A"], expected_graph_revision=5
        )
    assert await flow.revision() == 5

    await flow.apply("A>B")
    await flow.apply("B>C")
    assert await flow.states() == "A:w B:wc C:wc"
    assert await flow.group("B") == "0/0/0/1 pending"
    assert await flow.group("C") == "0/0/0/1 pending"

    await flow.complete("A", result=b"R")
    assert await flow.carry() == 1
    assert await flow.states() == "A:ok B:w C:wc"
    assert await flow.payload("B") == b"R"
    assert await flow.group("B") == "1/0/0/0 satisfied"
    assert await flow.group("C") == "0/0/0/1 pending"

    await flow.complete("B")
    assert await flow.carry() == 1
    assert await flow.states() == "A:ok B:ok C:w"
    assert await flow.payload("C") == b"own"
    assert await flow.group("B") == "1/0/0/0 satisfied"
    assert await flow.group("C") == "1/0/0/0 satisfied"

    await flow.complete("C")
    assert await flow.carry() == 1
    assert await flow.carry() == 0
    assert await flow.derived() == "completed"


async def test_e2_a_diamond_of_which_one_arm_fails(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "A>B A>C B>D C>D D>E")
    await flow.complete("A")
    await flow.carry()
    assert await flow.states() == "A:ok B:w C:w D:wc E:wc"

    await flow.claim("C")
    await flow.fail("B")
    await flow.carry()
    assert await flow.states() == "A:ok B:f C:a D:k E:wc"
    assert await flow.group("D") == "0/1/0/1 impossible"
    assert await flow.told("D") == ["skipped"]

    await flow.carry()
    assert await flow.states() == "A:ok B:f C:a D:k E:k"
    assert await flow.group("E") == "0/0/1/0 impossible"
    assert await flow.told("E") == ["skipped"]
    assert await flow.derived() == "running"

    await flow.complete("C")
    await flow.carry_all()
    assert await flow.states() == "A:ok B:f C:ok D:k E:k"
    assert await flow.group("D") == "1/1/0/0 impossible"
    assert await flow.told("D") == ["skipped"]
    assert await flow.derived() == "failed"


async def test_e3_a_race(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "P1>G P2>G P3>G", policies={"G": AnyOf()})
    await flow.claim("P1", "P2", "P3")
    assert await flow.states() == "G:wc P1:a P2:a P3:a"
    assert await flow.group("G") == "0/0/0/3 pending"

    await flow.fail("P2")
    await flow.carry()
    assert await flow.states() == "G:wc P1:a P2:f P3:a"
    assert await flow.group("G") == "0/1/0/2 pending"
    assert await listed(flow, "G") == (False, None, [], 0)

    await flow.complete("P1")
    await flow.carry()
    assert await flow.states() == "G:w P1:ok P2:f P3:a"
    assert await flow.group("G") == "1/1/0/1 satisfied"
    assert await listed(flow, "G") == (True, "sibling_quorum_satisfied", ["P3"], 1)

    assert await flow.tick() == 1
    assert await flow.states() == "G:w P1:ok P2:f P3:c"
    row = await flow.row("P3")
    assert (row["cancellation_reason"], row["cancelled_by"]) == (
        "sibling_quorum_satisfied",
        "engine",
    )
    assert (await given.lease_events(db, flow["P3"]))[-1] == ("revoked", "cancelled")
    assert await listed(flow, "G") == (False, "sibling_quorum_satisfied", [], 0)
    before = await flow.row("G")

    await flow.carry_all()
    assert await flow.states() == "G:w P1:ok P2:f P3:c"
    assert await flow.group("G") == "1/2/0/0 satisfied"
    assert await flow.row("G") == before
    assert await flow.tick() == 0

    await flow.complete("G")
    await flow.carry_all()
    assert await flow.derived() == "completed"


async def test_e4_two_of_three_and_the_others_run_on(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(
        ff_engine,
        fan_in(3),
        policies={"d": Quorum(2, "let_run")},
        fields={"u2": {"deadline": 10}},
    )
    await flow.complete("u1")
    await flow.carry()
    assert await flow.states() == "d:wc u1:ok u2:w u3:w"
    assert await flow.group("d") == "1/0/0/2 pending"

    await clock.advance(10)
    assert await expire_executions(db, limit=10) == 1
    await flow.carry()
    assert await flow.states() == "d:wc u1:ok u2:e u3:w"
    assert await flow.group("d") == "1/1/0/1 pending"

    await flow.complete("u3")
    await flow.carry()
    assert await flow.states() == "d:w u1:ok u2:e u3:ok"
    assert await flow.group("d") == "2/1/0/0 satisfied"
    assert await flow.count("pending_cancel_groups") == 0


async def test_e4_had_the_third_been_cancelled(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, fan_in(3), policies={"d": Quorum(2, "let_run")})
    await flow.end("u1", "S")
    await flow.end("u2", "E")
    await flow.end("u3", "C")

    await flow.carry()

    assert await flow.group("d") == "1/2/0/0 impossible"
    assert await flow.state("d") == "skipped"


async def test_e4_with_two_successes_first(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, fan_in(3), policies={"d": Quorum(2, "let_run")})
    await flow.claim("u3")
    await flow.complete("u1", "u2")
    await flow.carry()
    assert await flow.states() == "d:w u1:ok u2:ok u3:a"
    assert await flow.count("pending_cancel_groups") == 0
    fired_at = (await flow.group_row("d"))["fired_at_ms"]

    await flow.fail("u3")
    await flow.carry()

    assert await flow.group("d") == "2/1/0/0 satisfied"
    assert (await flow.group_row("d"))["fired_at_ms"] == fired_at
    assert await flow.state("d") == "waiting"


async def test_e5_a_quorum_that_cannot_be_reached_and_the_layers_below(ff_engine: Engine) -> None:
    flow = await submitted(
        ff_engine,
        f"{fan_in(5, 'D')} D>T V>W D>W",
        policies={"D": Quorum(3), "W": AnyOf("let_run")},
    )
    await flow.claim("u4", "u5")
    await flow.fail("u1", "u2")
    await flow.carry_all()
    assert await flow.states() == "D:wc T:wc V:w W:wc u1:f u2:f u3:w u4:a u5:a"
    assert await flow.group("D") == "0/2/0/3 pending"

    await flow.fail("u3")
    await flow.carry()
    assert await flow.states() == "D:k T:wc V:w W:wc u1:f u2:f u3:f u4:a u5:a"
    assert await flow.group("D") == "0/3/0/2 impossible"
    assert await listed(flow, "D") == (True, "sibling_quorum_impossible", ["u4", "u5"], 1)

    assert await flow.tick() == 1
    assert await flow.states() == "D:k T:wc V:w W:wc u1:f u2:f u3:f u4:c u5:c"
    assert (await flow.row("u4"))["cancellation_reason"] == "sibling_quorum_impossible"

    await flow.carry()
    assert await flow.states() == "D:k T:k V:w W:wc u1:f u2:f u3:f u4:c u5:c"
    assert await flow.group("D") == "0/5/0/0 impossible"
    assert await flow.group("W") == "0/0/1/1 pending"

    await flow.complete("V")
    await flow.carry_all()
    assert await flow.states() == "D:k T:k V:ok W:w u1:f u2:f u3:f u4:c u5:c"
    assert await flow.group("W") == "1/0/1/0 satisfied"


async def test_e6_replay_from_the_top(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "A>B C>B")
    await flow.fail("A")
    await flow.carry_all()
    assert await flow.group("B") == "0/1/0/1 impossible"
    await flow.complete("C")
    await flow.carry_all()
    assert await flow.states() == "A:f B:k C:ok"
    assert await flow.group("B") == "1/1/0/0 impossible"

    assert await flow.replay("B") == "waiting_children"
    assert await flow.states() == "A:f B:wc C:ok"
    edge = await flow.edge("A>B")
    [failure] = await flow.fetch(
        "SELECT event_id FROM ff.completion_event WHERE execution_id = $1", flow["A"].uuid
    )
    assert (edge["resolution"], edge["min_event_id"]) == ("unresolved", failure["event_id"])
    assert await flow.group("B") == "1/0/0/1 pending"

    assert await flow.carry_all() == 0
    assert await flow.group("B") == "1/0/0/1 pending"

    assert await flow.replay("A") == "waiting"
    await flow.complete("A")
    await flow.carry_all()
    assert await flow.states() == "A:ok B:w C:ok"
    assert (await flow.edge("A>B"))["resolution"] == "satisfied"
    assert await flow.group("B") == "2/0/0/0 satisfied"


async def test_e7_a_dispatcher_that_dies_has_done_nothing(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "A>B A>C")
    await flow.complete("A")
    before = await given.everything(db)
    dying = db.transaction()
    await dying.start()
    assert await dispatch_completions(db) == 1
    await dying.rollback()
    assert await given.everything(db) == before

    assert await flow.carry() == 1

    assert await flow.states() == "A:ok B:w C:w"
    assert await flow.group("B") == await flow.group("C") == "1/0/0/0 satisfied"
    assert await flow.carry() == 0
