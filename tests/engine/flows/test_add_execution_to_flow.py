"""An execution becomes a member of one flow, for good."""

from typing import Any
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.add_execution_to_flow import (
    AlreadyMember,
    MemberAdded,
    add_execution_to_flow,
)
from flowfabric.errors import (
    EngineError,
    ExecutionAlreadyInFlow,
    FlowAlreadyTerminal,
    NotFound,
    ValidationError,
)
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import TERMINAL, Another, execution
from tests.engine.flows.graphs import empty, flow_beside, flow_elsewhere, minted


async def refused(db: Connection, engine: Engine, *args: Any, **fields: Any) -> EngineError:
    """The error of an add that changes nothing."""
    before = await given.everything(db)
    with pytest.raises(EngineError) as error:
        await engine.add_execution_to_flow(*args, **fields)
    assert await given.everything(db) == before
    return error.value


async def test_it_is_a_member_and_the_graph_has_one_more_revision(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await empty(ff_engine)
    await clock.advance(5)
    first, second = [await given.created(db, execution_id=minted(flow.flow_id)) for _ in range(2)]

    answers = [
        await ff_engine.add_execution_to_flow(flow.flow_id, first, member_name="first"),
        await ff_engine.add_execution_to_flow(flow.flow_id, second),
    ]

    assert answers == [
        MemberAdded(execution_id=first, new_node_count=1),
        MemberAdded(execution_id=second, new_node_count=2),
    ]
    row = await flow.flow()
    assert (row["node_count"], row["edge_count"], row["graph_revision"]) == (2, 0, 2)
    assert row["last_mutation_at_ms"] == row["created_at_ms"] + 5000
    for each in (first, second):
        assert await ff_engine.resolve_execution_flow_id(each) == flow.flow_id
    names = [member.name for member in (await ff_engine.list_flow_members(flow.flow_id)).members]
    assert names == ["first", None]


async def test_it_goes_on_as_it_was(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine)
    execution_id = await given.created(db, execution_id=minted(flow.flow_id), delay=60)
    before = await given.vector(db, execution_id)

    await ff_engine.add_execution_to_flow(flow.flow_id, execution_id)

    assert await given.vector(db, execution_id) == before


async def test_a_member_again_changes_nothing(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await empty(ff_engine, "a", "b")
    before = await given.everything(db)
    await clock.advance(5)

    again = await ff_engine.add_execution_to_flow(flow.flow_id, flow["a"], member_name="other")

    assert again == AlreadyMember(execution_id=flow["a"], node_count=2)
    assert await given.everything(db) == before


async def test_an_id_of_another_partition_is_refused_first(
    db: Connection, ff_engine: Engine
) -> None:
    flow_id = uuid4()
    stranger = minted(flow_elsewhere(flow_id))

    error = await refused(db, ff_engine, flow_id, stranger)

    assert (error.code, error.http_status) == ("partition_mismatch", 400)
    assert isinstance(error, ValidationError)


async def test_there_must_be_such_a_flow(db: Connection, ff_engine: Engine) -> None:
    flow_id = uuid4()

    error = await refused(db, ff_engine, flow_id, minted(flow_id))

    assert (type(error), error.code, error.http_status) == (NotFound, "flow_not_found", 404)


async def test_a_cancelled_flow_takes_nobody(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine)
    await ff_engine.cancel_flow(flow.flow_id)

    error = await refused(db, ff_engine, flow.flow_id, minted(flow.flow_id))

    assert type(error) is FlowAlreadyTerminal
    assert (error.code, error.http_status) == ("flow_already_terminal", 409)


async def test_there_must_be_such_an_execution(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine)

    error = await refused(db, ff_engine, flow.flow_id, minted(flow.flow_id))

    assert (error.code, error.http_status) == ("execution_not_found", 404)


async def test_a_member_of_another_flow_stays_there(db: Connection, ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a")
    other = await empty(ff_engine, flow_id=flow_beside(flow.flow_id))

    error = await refused(db, ff_engine, other.flow_id, flow["a"])

    assert isinstance(error, ExecutionAlreadyInFlow)
    assert (error.code, error.http_status) == ("execution_already_in_flow", 409)
    assert error.flow_id == flow.flow_id
    assert str(flow.flow_id) in str(error)


async def test_a_member_of_a_cancelled_flow_is_not_told_that_it_is_one(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a")
    await ff_engine.cancel_flow(flow.flow_id)

    error = await refused(db, ff_engine, flow.flow_id, flow["a"])

    assert error.code == "flow_already_terminal"


@pytest.mark.parametrize("name", ["", "a\x00b", "x" * 257])
async def test_a_name_that_cannot_be_stored_is_refused(
    db: Connection, ff_engine: Engine, name: str
) -> None:
    flow = await empty(ff_engine)
    execution_id = await given.created(db, execution_id=minted(flow.flow_id))

    error = await refused(db, ff_engine, flow.flow_id, execution_id, member_name=name)

    assert error.code == "invalid_input"


@pytest.mark.parametrize("state", [*TERMINAL, "active", "delayed", "retrying", "blocked"])
async def test_it_may_stand_anywhere(db: Connection, ff_engine: Engine, state: str) -> None:
    flow = await empty(ff_engine)
    execution_id = await execution(db, state, execution_id=minted(flow.flow_id))
    before = await given.vector(db, execution_id)

    added = await ff_engine.add_execution_to_flow(flow.flow_id, execution_id)

    assert added == MemberAdded(execution_id=execution_id, new_node_count=1)
    assert await given.vector(db, execution_id) == before


async def test_a_flow_whose_members_have_all_ended_takes_more(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine, "a")
    await flow.complete("a")
    await ff_engine.project_flow_summary(flow.flow_id)
    assert await db.fetchval("SELECT public_flow_state FROM ff.flow_summary") == "completed"

    await flow.add("b")

    assert await flow.derived() == "open"
    assert await db.fetchval("SELECT public_flow_state FROM ff.flow_summary") == "open"


async def test_two_at_once_are_both_added(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine)
    ids = [await given.created(db, execution_id=minted(flow.flow_id)) for _ in range(2)]
    first, second = await another(), await another()

    async def add_second() -> MemberAdded | AlreadyMember:
        async with second.transaction():
            return await add_execution_to_flow(second, flow.flow_id, ids[1])

    async with first.transaction():
        one = await add_execution_to_flow(first, flow.flow_id, ids[0])
        adding = await given.blocked(db, second, add_second())

    assert one == MemberAdded(execution_id=ids[0], new_node_count=1)
    assert await adding == MemberAdded(execution_id=ids[1], new_node_count=2)


async def test_the_same_one_twice_at_once_is_added_once(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await empty(ff_engine)
    execution_id = await given.created(db, execution_id=minted(flow.flow_id))
    first, second = await another(), await another()

    async def add_second() -> MemberAdded | AlreadyMember:
        async with second.transaction():
            return await add_execution_to_flow(second, flow.flow_id, execution_id)

    async with first.transaction():
        await add_execution_to_flow(first, flow.flow_id, execution_id)
        adding = await given.blocked(db, second, add_second())

    assert await adding == AlreadyMember(execution_id=execution_id, node_count=1)


async def test_an_execution_of_another_namespace_is_as_unknown_as_one_that_never_was(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await empty(ff_engine)
    foreign = await given.created(db, execution_id=minted(flow.flow_id), namespace="another")
    unknown = minted(flow.flow_id)

    answers = [
        str(await refused(db, ff_engine, flow.flow_id, each)).replace(str(each), "it")
        for each in (foreign, unknown)
    ]

    assert answers[0] == answers[1]
