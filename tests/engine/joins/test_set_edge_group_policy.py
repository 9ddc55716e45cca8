"""What a member waits for is said before its first edge."""

from typing import Any
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.set_edge_group_policy import JoinPolicySet, set_edge_group_policy
from flowfabric.errors import (
    EngineError,
    ExecutionNotInFlow,
    FlowAlreadyTerminal,
    NotFound,
    ValidationError,
)
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from tests import given
from tests.engine.controls import NO_DATABASE
from tests.engine.flows.graphs import Graph, empty, flow_beside, minted
from tests.engine.flows.model import kind_of

POLICIES: list[JoinPolicy] = [AllOf(), AnyOf(), AnyOf("let_run"), Quorum(1), Quorum(3, "let_run")]


async def refused(db: Connection, flow: Graph, *args: Any, **fields: Any) -> EngineError:
    """The error of a call that changes nothing."""
    flow_id = fields.pop("flow_id", flow.flow_id)
    before = await given.everything(db)
    with pytest.raises(EngineError) as error:
        await flow.engine.set_edge_group_policy(flow_id, *args, **fields)
    assert await given.everything(db) == before
    return error.value


async def stored(flow: Graph, name: str) -> tuple[Any, ...]:
    row = await flow.group_row(name)
    return tuple(row[column] for column in ("policy_kind", "k", "on_satisfied", "expected_n"))


@pytest.mark.parametrize("expected_n", [None, 3])
@pytest.mark.parametrize("policy", POLICIES)
async def test_the_policy_is_stored_and_nothing_else_changes(
    ff_engine: Engine, policy: JoinPolicy, expected_n: int | None
) -> None:
    flow = await empty(ff_engine, "a", "d")

    answer = await ff_engine.set_edge_group_policy(
        flow.flow_id, flow["d"], policy, expected_n=expected_n
    )

    assert answer == JoinPolicySet(downstream=flow["d"])
    assert await stored(flow, "d") == (*kind_of(policy), expected_n)
    assert await flow.group("d") == "0/0/0/0 pending"
    assert await flow.revision() == 2
    assert await flow.states() == "a:w d:w"
    assert await flow.count("operator_event") == await flow.count("completion_event") == 0


async def test_the_same_again_changes_nothing(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "d")
    for policy, expected_n in ((Quorum(2), 3), (AnyOf(), None), (AllOf(), None)):
        call = (flow.flow_id, flow["d"], policy)
        await ff_engine.set_edge_group_policy(*call, expected_n=expected_n)
        before = await given.everything(db)

        again = await ff_engine.set_edge_group_policy(*call, expected_n=expected_n)

        assert again == JoinPolicySet(downstream=flow["d"], repeated=True)
        assert await given.everything(db) == before


@pytest.mark.parametrize(
    ("policy", "expected_n"),
    [
        (AllOf(), None),
        (AnyOf(), None),
        (Quorum(3), None),
        (Quorum(2, "let_run"), None),
        (Quorum(2), 2),
    ],
)
async def test_another_policy_takes_its_place_until_there_is_an_edge(
    ff_engine: Engine, policy: JoinPolicy, expected_n: int | None
) -> None:
    flow = await empty(ff_engine, "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], Quorum(2))

    answer = await ff_engine.set_edge_group_policy(
        flow.flow_id, flow["d"], policy, expected_n=expected_n
    )

    assert answer == JoinPolicySet(downstream=flow["d"])
    assert await stored(flow, "d") == (*kind_of(policy), expected_n)


@pytest.mark.parametrize("policy", POLICIES)
async def test_once_an_edge_is_staged_the_policy_is_fixed(
    db: Connection, ff_engine: Engine, policy: JoinPolicy
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.stage("a>d")

    error = await refused(db, flow, flow["d"], policy)
    assert (error.code, error.http_status) == ("edge_group_policy_already_fixed", 400)

    await flow.apply("a>d")
    error = await refused(db, flow, flow["d"], policy)
    assert error.code == "edge_group_policy_already_fixed"


async def test_even_the_same_policy_is_refused_then(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], AnyOf())
    await flow.stage("a>d")

    error = await refused(db, flow, flow["d"], AnyOf())

    assert error.code == "edge_group_policy_already_fixed"


async def test_edges_that_lead_away_fix_nothing(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.link("a>d")

    answer = await ff_engine.set_edge_group_policy(flow.flow_id, flow["a"], AnyOf())

    assert answer == JoinPolicySet(downstream=flow["a"])


async def test_each_check_comes_before_the_next(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    unknown, stranger = flow_beside(flow.flow_id), minted(flow.flow_id)

    error = await refused(db, flow, stranger, Quorum(3), flow_id=unknown, expected_n=2)
    assert (type(error), error.code) == (ValidationError, "invalid_input")

    error = await refused(db, flow, stranger, Quorum(3), flow_id=unknown)
    assert (type(error), error.code) == (NotFound, "flow_not_found")

    await ff_engine.create_flow(unknown, flow_kind="k")
    await ff_engine.cancel_flow(unknown)
    error = await refused(db, flow, stranger, Quorum(3), flow_id=unknown)
    assert (type(error), error.code) == (FlowAlreadyTerminal, "flow_already_terminal")

    error = await refused(db, flow, stranger, Quorum(3))
    assert (type(error), error.code) == (ExecutionNotInFlow, "execution_not_in_flow")


@pytest.mark.parametrize("expected_n", [0, -1])
async def test_how_many_are_expected_is_at_least_one(expected_n: int) -> None:
    with pytest.raises(ValidationError, match="expected_n"):
        await set_edge_group_policy(
            NO_DATABASE, uuid4(), minted(uuid4()), AllOf(), expected_n=expected_n
        )


@pytest.mark.parametrize(("policy", "expected_n"), [(Quorum(2**31), None), (AllOf(), 2**31)])
async def test_a_number_that_cannot_be_stored_is_refused(
    db: Connection, ff_engine: Engine, policy: JoinPolicy, expected_n: int | None
) -> None:
    flow = await empty(ff_engine, "d")

    error = await refused(db, flow, flow["d"], policy, expected_n=expected_n)

    assert (type(error), error.code) == (ValidationError, "invalid_input")


@pytest.mark.parametrize("expected_n", ["3", 2.5, True])
async def test_how_many_are_expected_is_a_whole_number(
    db: Connection, ff_engine: Engine, expected_n: Any
) -> None:
    flow = await empty(ff_engine, "d")

    error = await refused(db, flow, flow["d"], AllOf(), expected_n=expected_n)

    assert (type(error), error.code) == (ValidationError, "invalid_input")
