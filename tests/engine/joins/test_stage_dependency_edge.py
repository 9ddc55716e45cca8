"""An edge joins the graph: in the order of the checks, and at the revision that was read."""

from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins import stage_dependency_edge as staging
from flowfabric.engine.joins.stage_dependency_edge import EdgeStaged, stage_dependency_edge
from flowfabric.errors import (
    CycleDetected,
    DependencyAlreadyExists,
    EngineError,
    ExecutionNotInFlow,
    FlowAlreadyTerminal,
    NotFound,
    SelfReferencingEdge,
    StaleGraphRevision,
    ValidationError,
)
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.joins import AllOf, AnyOf
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import Another
from tests.engine.flows.graphs import (
    Graph,
    empty,
    flow_beside,
    flow_elsewhere,
    minted,
    submitted,
)

NOBODY = ExecutionId(0, uuid4())


async def refused(
    db: Connection, flow: Graph, up: ExecutionId, down: ExecutionId, **fields: Any
) -> EngineError:
    """The error of a stage that changes nothing."""
    fields.setdefault("expected_graph_revision", 2)
    flow_id, edge_id = fields.pop("flow_id", flow.flow_id), fields.pop("edge_id", new_uuid())
    before = await given.everything(db)
    with pytest.raises(EngineError) as error:
        await flow.engine.stage_dependency_edge(flow_id, edge_id, up, down, **fields)
    assert await given.everything(db) == before
    return error.value


async def test_a_staged_edge_is_part_of_the_graph_and_gates_nothing(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await empty(ff_engine, "a", "b", "c")
    await clock.advance(5)
    edge_id = new_uuid()
    assert await flow.revision() == 3

    staged = await ff_engine.stage_dependency_edge(
        flow.flow_id,
        edge_id,
        flow["a"],
        flow["b"],
        expected_graph_revision=3,
        data_passing_ref="$.x",
    )

    assert staged == EdgeStaged(edge_id=edge_id, new_graph_revision=4)
    row = await flow.flow()
    assert (row["node_count"], row["edge_count"], row["graph_revision"]) == (3, 1, 4)
    now = await clock.now_ms()
    assert row["last_mutation_at_ms"] == now
    edge = await flow.edge("a>b")
    assert edge == {
        **edge,
        "edge_id": edge_id,
        "edge_state": "pending",
        "resolution": "unresolved",
        "resolved_outcome": None,
        "dependency_kind": "success_only",
        "data_passing_ref": "$.x",
        "created_by": "engine",
        "created_at_ms": now,
        "applied_at_ms": None,
        "min_event_id": 0,
    }
    assert await flow.states() == "a:w b:w c:w"
    assert await flow.group("b") == "0/0/0/0 pending"
    assert await flow.count("completion_event") == 0


async def test_each_check_comes_before_the_next(db: Connection, ff_engine: Engine) -> None:
    """One call with everything wrong; what is named is put right, one after the other."""
    flow = await empty(ff_engine, "a", "b")
    unknown = flow_beside(flow.flow_id)
    wrong: dict[str, Any] = {
        "dependency_kind": "any",
        "flow_id": unknown,
        "expected_graph_revision": 7,
    }
    a, b, stranger = flow["a"], flow["b"], minted(flow.flow_id)

    error = await refused(db, flow, stranger, stranger, **wrong)
    assert (type(error), error.code) == (SelfReferencingEdge, "self_referencing_edge")

    error = await refused(db, flow, a, stranger, **wrong)
    assert (type(error), error.code) == (ValidationError, "invalid_input")
    assert "dependency_kind 'any' must be success_only" in str(error)

    del wrong["dependency_kind"]
    error = await refused(db, flow, a, stranger, **wrong)
    assert (type(error), error.code) == (NotFound, "flow_not_found")

    await ff_engine.create_flow(unknown, flow_kind="k")
    await ff_engine.cancel_flow(unknown)
    error = await refused(db, flow, a, stranger, **wrong)
    assert (type(error), error.code) == (FlowAlreadyTerminal, "flow_already_terminal")

    del wrong["flow_id"]
    error = await refused(db, flow, a, stranger, **wrong)
    assert isinstance(error, StaleGraphRevision)
    assert (error.code, error.retryable) == ("stale_graph_revision", True)
    assert (error.expected, error.current) == (7, 2)

    del wrong["expected_graph_revision"]
    error = await refused(db, flow, a, stranger)
    assert (type(error), error.code) == (ExecutionNotInFlow, "execution_not_in_flow")

    await flow.stage("a>b")
    edge_id = flow.edge_ids["a>b"]
    error = await refused(db, flow, b, a, edge_id=edge_id, expected_graph_revision=3)
    assert (type(error), error.code) == (CycleDetected, "cycle_detected")

    error = await refused(db, flow, a, b, expected_graph_revision=3)
    assert (type(error), error.code) == (DependencyAlreadyExists, "dependency_already_exists")


@all_cases(
    ("error", "status"),
    [
        (SelfReferencingEdge(NOBODY), 409),
        (CycleDetected(uuid4(), NOBODY), 409),
        (DependencyAlreadyExists(None, uuid4()), 409),
        (StaleGraphRevision(uuid4(), expected=1, current=2), 409),
        (ExecutionNotInFlow(NOBODY, uuid4()), 409),
        (FlowAlreadyTerminal(uuid4()), 409),
        (NotFound("flow", uuid4()), 404),
        (NotFound("edge", uuid4()), 404),
    ],
)
def test_every_refusal_has_its_status(error: EngineError, status: int) -> None:
    assert error.http_status == status


@pytest.mark.parametrize("which", ["upstream", "downstream", "elsewhere", "other flow", "alone"])
async def test_both_ends_are_members(db: Connection, ff_engine: Engine, which: str) -> None:
    flow = await empty(ff_engine, "a", "b")
    a, b = flow["a"], flow["b"]
    match which:
        case "upstream":
            error = await refused(db, flow, minted(flow.flow_id), b)
        case "downstream":
            error = await refused(db, flow, a, minted(flow.flow_id))
        case "elsewhere":
            error = await refused(db, flow, a, minted(flow_elsewhere(flow.flow_id)))
        case "other flow":
            other = await empty(ff_engine, "c", flow_id=flow_beside(flow.flow_id))
            error = await refused(db, flow, a, other["c"])
        case _:
            alone = await given.created(db, execution_id=minted(flow.flow_id))
            error = await refused(db, flow, alone, b)

    assert error.code == "execution_not_in_flow"


async def test_the_revision_is_compared_exactly(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "c")
    await flow.stage("a>b")

    for stale in (0, 3, 5):
        error = await refused(db, flow, flow["b"], flow["c"], expected_graph_revision=stale)
        assert error.code == "stale_graph_revision"

    assert await flow.revision() == 4


async def test_a_lost_reply_is_found_out_by_the_edge_that_exists(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a", "b")
    edge_id = await flow.stage("a>b", ref="x")
    ends = flow["a"], flow["b"]

    error = await refused(db, flow, *ends, edge_id=edge_id)
    assert error.code == "stale_graph_revision"
    error = await refused(db, flow, *ends, edge_id=edge_id, expected_graph_revision=3)

    assert isinstance(error, DependencyAlreadyExists)
    assert error.existing == await ff_engine.describe_edge(flow.flow_id, edge_id)
    assert error.edge_id == edge_id


async def test_an_edge_id_is_taken_once_in_a_flow(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "c")
    edge_id = await flow.stage("a>b")

    error = await refused(
        db, flow, flow["b"], flow["c"], edge_id=edge_id, expected_graph_revision=4
    )

    assert isinstance(error, DependencyAlreadyExists)
    assert error.existing == await ff_engine.describe_edge(flow.flow_id, edge_id)
    other = await empty(ff_engine, "a", "b", flow_id=flow_beside(flow.flow_id))
    staged = await ff_engine.stage_dependency_edge(
        other.flow_id, edge_id, other["a"], other["b"], expected_graph_revision=2
    )
    assert staged.new_graph_revision == 3


async def test_an_upstream_votes_once(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b")
    await flow.link("a>b")

    error = await refused(db, flow, flow["a"], flow["b"], expected_graph_revision=3)

    assert error.code == "dependency_already_exists"


# Cycles.


async def test_a_cycle_is_found_over_any_way(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b a>c b>d c>d d>e x>d")
    revision = await flow.revision()
    for up, down in ("ea", "ec", "da", "db", "ba", "ex"):
        error = await refused(db, flow, flow[up], flow[down], expected_graph_revision=revision)
        assert error.code == "cycle_detected", (up, down)

    for arrow in ("b>c", "a>d", "a>e", "x>a", "x>b"):
        await flow.stage(arrow)


async def test_staged_applied_and_resolved_edges_count_alike(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a", "b", "c", "d")
    await flow.link("a>b")
    await flow.complete("a")
    await flow.carry_all()
    await flow.stage("b>c")
    await flow.link("c>d")

    error = await refused(db, flow, flow["d"], flow["a"], expected_graph_revision=7)

    assert error.code == "cycle_detected"
    assert await flow.revision() == 7


async def test_a_long_chain_is_followed_to_its_end(db: Connection, ff_engine: Engine) -> None:
    names = [f"m{number:04}" for number in range(1200)]
    arrows = " ".join(f"{up}>{down}" for up, down in pairwise(names))
    flow = await submitted(ff_engine, f"{arrows} other")
    revision = await flow.revision()

    error = await refused(
        db, flow, flow[names[-1]], flow[names[0]], expected_graph_revision=revision
    )
    assert error.code == "cycle_detected"

    await flow.stage(f"other>{names[0]}")


async def test_a_graph_that_is_too_large_is_not_called_a_cycle(
    db: Connection, ff_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MAX_NODES", 3)
    flow = await submitted(ff_engine, "a>b b>c c>d d>e x")

    error = await refused(db, flow, flow["x"], flow["a"], expected_graph_revision=10)
    assert error.code == "invalid_input"
    assert "graph_too_large" in str(error)

    await flow.stage("x>c")


# Groups that say how many they expect.


async def test_no_more_edges_than_expected(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "c", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], AnyOf(), expected_n=2)
    await flow.stage("a>d")
    await flow.link("b>d")

    error = await refused(db, flow, flow["c"], flow["d"], expected_graph_revision=6)

    assert error.code == "invalid_input"
    assert "expects 2 edges" in str(error)
    await flow.stage("c>a")


async def test_a_policy_that_expects_nothing_takes_any_number(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], AllOf())

    assert await flow.link("a>d", "b>d") == 2


# At once.


async def test_of_two_at_once_one_is_stale(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine, "a", "b", "c")
    first, second = await another(), await another()

    async def stage(conn: Connection, up: str, down: str) -> EdgeStaged:
        async with conn.transaction():
            return await stage_dependency_edge(
                conn, flow.flow_id, new_uuid(), flow[up], flow[down], expected_graph_revision=3
            )

    async with first.transaction():
        await stage(first, "a", "b")
        staging_second = await given.blocked(db, second, stage(second, "b", "a"))

    with pytest.raises(StaleGraphRevision):
        await staging_second
    assert await flow.count("edge") == 1


@pytest.mark.parametrize("ref", ["a\x00b", "\ud800"])
async def test_a_reference_that_cannot_be_stored_is_refused(
    db: Connection, ff_engine: Engine, ref: str
) -> None:
    flow = await empty(ff_engine, "a", "b")

    error = await refused(db, flow, flow["a"], flow["b"], data_passing_ref=ref)

    assert error.code == "invalid_input"
