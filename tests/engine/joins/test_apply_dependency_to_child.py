"""A staged edge begins to gate; an upstream that has ended is heard of at once."""

from typing import Any
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.apply_dependency_to_child import (
    EdgeAlreadyApplied,
    EdgeApplied,
    apply_dependency_to_child,
)
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.operators.unblock_execution import unblock_execution
from flowfabric.errors import EngineError, NotFound, ValidationError
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another, execution
from tests.engine.flows.graphs import Graph, empty, flow_beside, minted, submitted
from tests.engine.grants.granted import claim_granted, keyed


async def refused(db: Connection, flow: Graph, edge_id: Any, **fields: Any) -> EngineError:
    """The error of an apply that changes nothing."""
    flow_id = fields.pop("flow_id", flow.flow_id)
    before = await given.everything(db)
    with pytest.raises(EngineError) as error:
        await flow.engine.apply_dependency_to_child(flow_id, edge_id, **fields)
    assert await given.everything(db) == before
    return error.value


async def test_the_downstream_waits_for_the_upstream(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await empty(ff_engine, "a", "d")
    edge_id = await flow.stage("a>d")
    await clock.advance(5)

    answer = await flow.apply("a>d")

    assert answer == EdgeApplied(edge_id=edge_id, unsatisfied_count=1)
    assert await given.vector(db, flow["d"]) == (
        "runnable",
        "blocked_by_dependencies",
        "waiting_for_children",
        "none",
        "pending_first_attempt",
        "waiting_children",
    )
    edge = await flow.edge("a>d")
    assert (edge["edge_state"], edge["resolution"]) == ("applied", "unresolved")
    assert edge["applied_at_ms"] == edge["created_at_ms"] + 5000
    group = await flow.group_row("d")
    assert (group["policy_kind"], group["k"], group["on_satisfied"]) == ("all_of", None, None)
    assert await flow.group("d") == "0/0/0/1 pending"
    assert await flow.revision() == 3
    assert await flow.count("completion_event") == 0
    assert [task.lease.execution_id for task in await claim(db, given.WORKER, ttl=5, limit=9)] == [
        flow["a"]
    ]


async def test_each_edge_adds_to_what_is_open(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "c", "d")
    for arrow in ("a>d", "b>d", "c>d"):
        await flow.stage(arrow)

    answers = [await flow.apply(arrow) for arrow in ("c>d", "a>d", "b>d")]

    assert [isinstance(each, EdgeApplied) and each.unsatisfied_count for each in answers] == [
        1,
        2,
        3,
    ]
    assert await flow.group("d") == "0/0/0/3 pending"


async def test_the_same_again_changes_nothing(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.link("a>d")
    before = await given.everything(db)
    await clock.advance(5)

    assert await flow.apply("a>d") == EdgeAlreadyApplied(edge_id=flow.edge_ids["a>d"])

    assert await given.everything(db) == before


# Checks, in their order.


async def test_there_must_be_such_an_edge(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    edge_id = await flow.stage("a>d")

    error = await refused(db, flow, uuid4())
    assert (type(error), error.code, error.http_status) == (NotFound, "edge_not_found", 404)

    error = await refused(db, flow, edge_id, flow_id=flow_beside(flow.flow_id))
    assert error.code == "edge_not_found"


async def test_endpoints_that_are_given_must_be_those_of_the_edge(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a", "b", "d")
    edge_id = await flow.stage("a>d")
    for ends in (
        {"upstream": flow["b"]},
        {"downstream": flow["b"]},
        {"upstream": flow["d"], "downstream": flow["a"]},
        {"upstream": flow["a"], "downstream": minted(flow.flow_id)},
    ):
        error = await refused(db, flow, edge_id, **ends)
        assert (error.code, error.http_status) == ("invalid_dependency", 400)

    answer = await ff_engine.apply_dependency_to_child(
        flow.flow_id, edge_id, upstream=flow["a"], downstream=flow["d"]
    )

    assert answer == EdgeApplied(edge_id=edge_id, unsatisfied_count=1)


async def test_wrong_endpoints_are_refused_of_an_applied_edge_too(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.link("a>d")

    error = await refused(db, flow, flow.edge_ids["a>d"], upstream=flow["d"])

    assert error.code == "invalid_dependency"


async def test_a_cancelled_flow_is_not_gated_any_more(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "d")
    await flow.link("a>d")
    await flow.stage("b>d")
    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_flow_only")

    error = await refused(db, flow, flow.edge_ids["b>d"])
    assert (error.code, error.http_status) == ("flow_already_terminal", 409)

    assert await flow.apply("a>d") == EdgeAlreadyApplied(edge_id=flow.edge_ids["a>d"])


@pytest.mark.parametrize("letter", list("SFCEK"))
async def test_a_downstream_that_has_ended_is_not_gated(
    db: Connection, ff_engine: Engine, letter: str
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.stage("a>d")
    await flow.end("d", letter)

    error = await refused(db, flow, flow.edge_ids["a>d"])

    assert isinstance(error, ValidationError)
    assert (error.code, error.detail.partition(":")[0]) == (
        "invalid_dependency",
        "downstream_terminal",
    )


# Where the downstream stands.


async def test_a_delayed_downstream_keeps_its_time_for_afterwards(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await empty(ff_engine, "a")
    await flow.add("d", delay=60)
    until = (await flow.row("d"))["delay_until_ms"]

    await flow.link("a>d")
    assert await flow.states() == "a:w d:wc"
    await clock.advance(20)
    assert await promote_due(db, limit=10) == 0
    await flow.complete("a")
    await flow.carry_all()

    row = await flow.row("d")
    assert (row["public_state"], row["delay_until_ms"]) == ("delayed", until)
    assert row["blocking_reason"] == "waiting_for_delay"
    await clock.advance(40)
    assert await promote_due(db, limit=10) == 1
    await flow.complete("d")


async def test_a_time_that_passes_while_it_waits_is_forgotten(
    ff_engine: Engine, clock: Clock
) -> None:
    flow = await empty(ff_engine, "a")
    await flow.add("d", delay=60)
    await flow.link("a>d")
    await clock.advance(60)
    await flow.complete("a")

    await flow.carry_all()

    assert await flow.states() == "a:ok d:w"


async def test_whatever_was_promised_of_it_is_withdrawn(db: Connection, ff_engine: Engine) -> None:
    await keyed(db)
    flow = await empty(ff_engine, "a", "d")
    await claim_granted(db, flow["d"])
    assert await db.fetchval("SELECT count(*) FROM ff.claim_grant") == 1

    await flow.link("a>d")

    assert await db.fetchval("SELECT count(*) FROM ff.claim_grant") == 0


async def test_a_downstream_that_runs_is_not_held_up(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.claim("d")
    before = await flow.row("d")

    assert await flow.link("a>d") == 1

    assert await flow.row("d") == before
    assert await flow.group("d") == "0/0/0/1 pending"
    await flow.complete("d")
    await flow.complete("a")
    await flow.carry_all()
    assert await flow.states() == "a:ok d:ok"
    assert await flow.told("d") == ["success"]


@pytest.mark.parametrize("reason", ["waiting_for_quota", "paused_by_operator"])
async def test_one_that_something_else_holds_back_does_not_run_before_its_upstream(
    db: Connection, ff_engine: Engine, reason: str
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await block_execution_for_admission(db, flow["d"], reason)

    await flow.link("a>d")
    if await flow.state("d") != "waiting_children":
        await unblock_execution(db, flow["d"])

    assert await flow.states() == "a:w d:wc"


# An upstream that has ended.


@pytest.mark.parametrize(
    ("letter", "counts", "state"),
    [
        ("S", "1/0/0/0 satisfied", "w"),
        ("F", "0/1/0/0 impossible", "k"),
        ("C", "0/1/0/0 impossible", "k"),
        ("E", "0/1/0/0 impossible", "k"),
        ("K", "0/0/1/0 impossible", "k"),
    ],
)
@pytest.mark.parametrize("dispatched", [True, False])
async def test_an_upstream_that_has_ended_is_heard_of_at_once(
    ff_engine: Engine, letter: str, counts: str, state: str, dispatched: bool
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.end("a", letter)
    if dispatched:
        assert await flow.carry() == 1

    assert await flow.link("a>d") == 0

    assert await flow.group("d") == counts
    assert (await flow.states()).endswith(f"d:{state}")
    assert await flow.told("d") == (["skipped"] if state == "k" else [])
    await flow.carry_all()
    assert await flow.group("d") == counts
    if state == "k":
        assert (await flow.row("d"))["failure_reason"] == "dependency_impossible"


async def test_an_end_from_before_it_was_a_member_counts(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine)
    flow.ids["a"] = await execution(db, "completed", execution_id=minted(flow.flow_id))
    await ff_engine.add_execution_to_flow(flow.flow_id, flow["a"])
    await flow.add("d")

    assert await flow.link("a>d") == 0

    assert await flow.group("d") == "1/0/0/0 satisfied"
    assert await flow.states() == "a:ok d:w"


async def test_other_edges_hear_of_the_end_when_it_is_dispatched(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "d")
    await flow.link("a>b")
    await flow.complete("a")
    await flow.link("a>d")
    assert await flow.states() == "a:ok b:wc d:w"

    assert await flow.carry() == 1

    assert await flow.states() == "a:ok b:w d:w"
    assert await flow.group("d") == "1/0/0/0 satisfied"


async def test_the_result_of_one_that_has_ended_is_passed_on(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a")
    await flow.add("d", input_payload=b"own")
    await flow.complete("a", result=b"R")

    await flow.link("a>d", ref="input")

    assert await flow.payload("d") == b"R"


async def test_one_that_was_replayed_and_runs_again_has_not_ended(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.fail("a")
    await flow.carry_all()
    await flow.replay("a")

    assert await flow.link("a>d") == 1

    await flow.complete("a")
    await flow.carry_all()
    assert await flow.states() == "a:ok d:w"


async def test_a_skip_at_once_goes_on_from_there(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "d>e e>f a")
    await flow.fail("a")
    await flow.link("a>d")

    await flow.carry_all()

    assert await flow.states() == "a:f d:k e:k f:k"


# Beside an end that comes at the same time.


async def test_an_end_that_waits_for_the_edge_is_carried_across_it(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.stage("a>d")
    [lease] = await flow.claim("a")
    builder, worker = await another(), await another()

    async with builder.transaction():
        await apply_dependency_to_child(builder, flow.flow_id, flow.edge_ids["a>d"])
        ending = await given.blocked(db, worker, complete(worker, [Completion(lease)]))
    await ending
    assert await flow.group("d") == "0/0/0/1 pending"

    await flow.carry_all()

    assert await flow.group("d") == "1/0/0/0 satisfied"


async def test_an_edge_that_waits_for_an_end_hears_of_it(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.stage("a>d")
    [lease] = await flow.claim("a")
    builder, worker = await another(), await another()

    async def apply() -> EdgeApplied | EdgeAlreadyApplied:
        async with builder.transaction():
            return await apply_dependency_to_child(builder, flow.flow_id, flow.edge_ids["a>d"])

    async with worker.transaction():
        await complete(worker, [Completion(lease)])
        applying = await given.blocked(db, builder, apply())
    assert await applying == EdgeApplied(edge_id=flow.edge_ids["a>d"], unsatisfied_count=0)

    assert await flow.group("d") == "1/0/0/0 satisfied"
    await flow.carry_all()
    assert await flow.states() == "a:ok d:w"
    heard_of = (await flow.edge("a>d"))["resolved_event_id"]
    assert heard_of == await db.fetchval("SELECT max(event_id) FROM ff.completion_event")
