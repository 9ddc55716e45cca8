"""A whole graph at once: everything is there and gated from the first moment, or nothing is."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.flows.submission import FlowSubmitted
from flowfabric.engine.flows.submit_flow import submit_flow
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.errors import (
    CycleDetected,
    DependencyAlreadyExists,
    EngineError,
    ExecutionNotInFlow,
    LaneNotAccepting,
    SelfReferencingEdge,
    ValidationError,
)
from flowfabric.joins import AllOf, AnyOf, Quorum
from flowfabric.testing import Clock
from tests import given
from tests.engine.flows.graphs import Graph, flow_elsewhere, member, minted, submitted

Another = Callable[[], Awaitable[Connection]]


def new_flow(names: str = "ab", edges: str = "a>b", **fields: Any) -> NewFlow:
    """A flow to submit; edges are written `a>b`."""
    flow_id = fields.pop("flow_id", None) or uuid4()
    members = [member(flow_id, name) for name in names]
    ids = {each.member_name: each.execution_id for each in members}
    arrows = [arrow.split(">") for arrow in edges.split()]
    return NewFlow(
        flow_id=flow_id,
        flow_kind="pipeline",
        members=members,
        edges=[NewEdge(upstream=ids[up], downstream=ids[down]) for up, down in arrows],
        **fields,
    )


async def refused(db: Connection, engine: Engine, flow: NewFlow) -> EngineError:
    """The error of a submission of which nothing is left."""
    before = await given.everything(db)
    with pytest.raises(EngineError) as error:
        await engine.submit_flow(flow)
    assert await given.everything(db) == before
    return error.value


async def test_the_whole_graph_is_there(db: Connection, ff_engine: Engine, clock: Clock) -> None:
    new = new_flow("abcd", "a>b a>c b>d c>d", tags={"shop.tenant": "t"})

    answer = await ff_engine.submit_flow(new)

    assert answer == FlowSubmitted(flow_id=new.flow_id, members=4, edges=4)
    flow = Graph(ff_engine, new.flow_id, {m.member_name or "": m.execution_id for m in new.members})
    assert await flow.states() == "a:w b:wc c:wc d:wc"
    assert [await flow.group(name) for name in "bcd"] == [
        "0/0/0/1 pending",
        "0/0/0/1 pending",
        "0/0/0/2 pending",
    ]
    row = await flow.flow()
    assert (row["node_count"], row["edge_count"], row["graph_revision"]) == (4, 4, 8)
    assert row["tags"] == '{"shop.tenant": "t"}'
    for arrow in ("a>b", "a>c", "b>d", "c>d"):
        edge = await flow.edge(arrow)
        assert (edge["edge_state"], edge["resolution"]) == ("applied", "unresolved")
        assert edge["applied_at_ms"] == await clock.now_ms()
    page = await ff_engine.list_flow_members(new.flow_id)
    assert [each.name for each in page.members] == list("abcd")
    assert await flow.count("completion_event") == await flow.count("operator_event") == 0


async def test_nothing_that_waits_can_be_claimed(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b b>c x")

    tasks = await claim(db, given.WORKER, ttl=30, limit=10)

    assert flow.named([task.lease.execution_id for task in tasks]) == ["a", "x"]
    assert {task.flow_id for task in tasks} == {flow.flow_id}


async def test_it_is_as_if_built_step_by_step(ff_engine: Engine) -> None:
    at_once = await submitted(ff_engine, "a>d b>d", policies={"d": Quorum(2, "let_run")})
    by_steps = Graph(ff_engine, uuid4(), {})
    await ff_engine.create_flow(by_steps.flow_id, flow_kind="pipeline")
    await by_steps.add("a", "b", "d")
    await ff_engine.set_edge_group_policy(by_steps.flow_id, by_steps["d"], Quorum(2, "let_run"))
    await by_steps.link("a>d", "b>d")

    own = {
        "partition_key",
        "flow_id",
        "group_id",
        "waiter_eid",
        "created_at_ms",
        "last_mutation_at_ms",
    }
    for read in (Graph.flow, lambda flow: flow.group_row("d")):
        one, other = await read(at_once), await read(by_steps)
        assert {k: v for k, v in one.items() if k not in own} == {
            k: v for k, v in other.items() if k not in own
        }
    assert await at_once.states() == await by_steps.states()


async def test_policies_are_stored_and_the_default_is_all(ff_engine: Engine) -> None:
    flow = await submitted(
        ff_engine,
        "a>d b>d a>e b>e a>f b>f a>g",
        policies={"d": AnyOf("let_run"), "e": Quorum(2), "f": AllOf()},
    )

    rows = [await flow.group_row(name) for name in "defg"]

    assert [(row["policy_kind"], row["k"], row["on_satisfied"]) for row in rows] == [
        ("any_of", None, "let_run"),
        ("quorum", 2, "cancel_remaining"),
        ("all_of", None, None),
        ("all_of", None, None),
    ]


async def test_the_same_id_again_changes_nothing(db: Connection, ff_engine: Engine) -> None:
    new = new_flow("abc", "a>b")
    await ff_engine.submit_flow(new)
    before = await given.everything(db)

    again = await ff_engine.submit_flow(new)
    other = await ff_engine.submit_flow(new_flow("xy", "x>y", flow_id=new.flow_id))

    assert again == FlowSubmitted(flow_id=new.flow_id, members=3, edges=1, repeated=True)
    assert other.repeated
    assert await given.everything(db) == before


async def test_members_keep_what_they_were_given(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(
        ff_engine,
        "a>b c",
        fields={
            "a": {"delay": 60, "priority": 7},
            "b": {"input_payload": b"own", "tags": {"a.b": "1"}, "lane_id": "slow"},
            "c": {"deadline": 5},
        },
    )

    assert await flow.states() == "a:d b:wc c:w"
    assert (await flow.row("a"))["priority"] == 7
    assert await flow.payload("b") == b"own"
    assert (await flow.row("b"))["tags"] == '{"a.b": "1"}'


async def test_a_delayed_member_that_waits_is_delayed_afterwards(
    ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>b a>c", fields={"b": {"delay": 60}, "c": {"delay": 5}})
    assert await flow.states() == "a:w b:wc c:wc"
    await clock.advance(10)
    await flow.complete("a")

    await flow.carry_all()

    assert await flow.states() == "a:ok b:d c:w"
    assert (await flow.row("b"))["delay_until_ms"] == await clock.now_ms() + 50_000


async def test_a_flow_may_have_one_member_but_not_none(ff_engine: Engine) -> None:
    assert (await ff_engine.submit_flow(new_flow("a", ""))).members == 1
    with pytest.raises(ValidationError, match="members"):
        await ff_engine.submit_flow(new_flow("", ""))


# What does not fit together.


def changed(flow: NewFlow, **fields: Any) -> NewFlow:
    return msgspec.structs.replace(flow, **fields)


async def test_an_edge_that_leads_nowhere(db: Connection, ff_engine: Engine) -> None:
    flow = new_flow("ab")
    stranger, a = minted(flow.flow_id), flow.members[0].execution_id
    for up, down, error in (
        (a, a, SelfReferencingEdge),
        (stranger, a, ExecutionNotInFlow),
        (a, stranger, ExecutionNotInFlow),
    ):
        edges = [*flow.edges, NewEdge(upstream=up, downstream=down)]
        assert type(await refused(db, ff_engine, changed(flow, edges=edges))) is error


async def test_the_same_edge_twice(db: Connection, ff_engine: Engine) -> None:
    flow = new_flow("ab", "a>b a>b")

    error = await refused(db, ff_engine, flow)

    assert isinstance(error, DependencyAlreadyExists)
    assert error.existing == flow.edges[0] != flow.edges[1]
    assert error.edge_id == flow.edges[0].edge_id


@pytest.mark.parametrize("edges", ["a>b b>a", "a>b b>c c>d d>b", "d>c c>b b>a a>d"])
async def test_a_cycle(db: Connection, ff_engine: Engine, edges: str) -> None:
    assert type(await refused(db, ff_engine, new_flow("abcd", edges))) is CycleDetected


async def test_a_member_of_another_partition(db: Connection, ff_engine: Engine) -> None:
    flow = new_flow("ab")
    stranger = given.new(execution_id=minted(flow_elsewhere(flow.flow_id)))

    error = await refused(db, ff_engine, changed(flow, members=[*flow.members, stranger]))

    assert error.code == "partition_mismatch"


@pytest.mark.parametrize(
    "wrong",
    ["id twice", "name twice", "empty name", "idempotency key", "another namespace"],
)
async def test_members_that_do_not_fit(db: Connection, ff_engine: Engine, wrong: str) -> None:
    flow = new_flow("ab")
    extra = {
        "id twice": flow.members[0],
        "name twice": member(flow.flow_id, "a"),
        "empty name": member(flow.flow_id, ""),
        "idempotency key": given.new(execution_id=minted(flow.flow_id), idempotency_key="k"),
        "another namespace": member(flow.flow_id, "c", namespace="elsewhere"),
    }[wrong]

    error = await refused(db, ff_engine, changed(flow, members=[*flow.members, extra]))

    assert (type(error), error.code) == (ValidationError, "invalid_input")


async def test_members_without_names_are_no_twins(ff_engine: Engine) -> None:
    flow = new_flow("ab")
    more = [*flow.members, member(flow.flow_id), member(flow.flow_id)]

    assert (await ff_engine.submit_flow(changed(flow, members=more))).members == 4


async def test_a_policy_of_nobody(db: Connection, ff_engine: Engine) -> None:
    flow = new_flow("ab")
    policies = {minted(flow.flow_id): AnyOf()}

    assert type(await refused(db, ff_engine, changed(flow, policies=policies))) is (
        ExecutionNotInFlow
    )


async def test_a_quorum_of_more_than_there_are(db: Connection, ff_engine: Engine) -> None:
    flow = new_flow("abd", "a>d b>d")
    d = flow.members[2].execution_id

    error = await refused(db, ff_engine, changed(flow, policies={d: Quorum(3)}))
    assert error.code == "invalid_input"

    await ff_engine.submit_flow(changed(flow, policies={d: Quorum(2)}))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"flow_kind": ""}, "invalid_input"),
        ({"tags": {"Bad": "x"}}, "invalid_tag_key"),
        ({"tags": {"a.b": "x\x00"}}, "invalid_input"),
    ],
)
async def test_a_flow_that_cannot_be_stored(
    db: Connection, ff_engine: Engine, fields: dict[str, Any], code: str
) -> None:
    assert (await refused(db, ff_engine, changed(new_flow(), **fields))).code == code


async def test_a_member_whose_id_is_taken_leaves_nothing_behind(
    db: Connection, ff_engine: Engine
) -> None:
    flow = new_flow("abc", "a>b b>c")
    await given.created(db, execution_id=flow.members[1].execution_id)

    error = await refused(db, ff_engine, flow)

    assert error.code == "invalid_input"
    assert str(flow.members[1].execution_id) in str(error)


async def test_a_lane_that_takes_nothing_leaves_nothing_behind(
    db: Connection, ff_engine: Engine
) -> None:
    await given.created(db, lane_id="slow")
    await set_lane_state(db, "slow", "draining")
    flow = new_flow("ab")
    slow = member(flow.flow_id, "c", lane_id="slow")

    error = await refused(db, ff_engine, changed(flow, members=[*flow.members, slow]))

    assert type(error) is LaneNotAccepting


async def test_a_thousand_members_take_no_time(ff_engine: Engine) -> None:
    names = [f"m{number}" for number in range(1000)]
    arrows = " ".join(f"{name}>end" for name in names)

    flow = await submitted(ff_engine, arrows, policies={"end": Quorum(500, "let_run")})

    assert await flow.group("end") == "0/0/0/1000 pending"


# Several at once.


async def test_several_are_answered_in_order_and_a_bad_one_does_not_spoil_its_neighbours(
    db: Connection, ff_engine: Engine
) -> None:
    earlier, first, last = new_flow("ab"), new_flow("abc", "a>b a>c"), new_flow("a", "")
    await ff_engine.submit_flow(earlier)
    circle, taken = new_flow("ab", "a>b b>a"), new_flow("ab")
    stranger = taken.members[1].execution_id
    await given.created(db, execution_id=stranger)

    answers = await ff_engine.submit_flows([first, circle, earlier, taken, last, first])

    assert [type(each).__name__ for each in answers] == [
        "FlowSubmitted",
        "CycleDetected",
        "FlowSubmitted",
        "ValidationError",
        "FlowSubmitted",
        "FlowSubmitted",
    ]
    done = [each for each in answers if isinstance(each, FlowSubmitted)]
    assert [(each.flow_id, each.members, each.repeated) for each in done] == [
        (first.flow_id, 3, False),
        (earlier.flow_id, 2, True),
        (last.flow_id, 1, False),
        (first.flow_id, 3, True),
    ]
    assert str(stranger) in str(answers[3])
    assert await db.fetchval("SELECT count(*) FROM ff.flow_core") == 3
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 2 + 3 + 1 + 1
    flow = Graph(
        ff_engine, first.flow_id, {m.member_name or "": m.execution_id for m in first.members}
    )
    assert await flow.states() == "a:w b:wc c:wc"
    assert await flow.group("b") == await flow.group("c") == "0/0/0/1 pending"


async def test_several_at_once_are_as_if_one_by_one(db: Connection, ff_engine: Engine) -> None:
    def flows() -> list[NewFlow]:
        return [
            new_flow("abd", "a>d b>d", tags={"a.b": "1"}),
            changed(new_flow("ab"), members=[]),
            new_flow("xyz", "x>z"),
        ]

    async def stored() -> list[Any]:
        rows = await db.fetch(
            "SELECT f.flow_kind, f.tags, f.node_count, f.edge_count, f.graph_revision,"
            " array_agg(b.member_name || e.public_state ORDER BY b.member_name) AS members"
            " FROM ff.flow_core f JOIN ff.execution e USING (partition_key, flow_id)"
            " JOIN ff.exec_body b USING (partition_key, execution_id)"
            " GROUP BY f.flow_id, 1, 2, 3, 4, 5 ORDER BY members"
        )
        return [dict(row) for row in rows]

    one_by_one = flows()
    for flow in (one_by_one[0], one_by_one[2]):
        await ff_engine.submit_flow(flow)
    alone = await stored()
    await ff_engine.submit_flows(flows())

    assert await stored() == [each for row in alone for each in (row, row)]


async def test_a_lane_that_takes_nothing_refuses_all_of_them(
    db: Connection, ff_engine: Engine
) -> None:
    await given.created(db, lane_id="slow")
    await set_lane_state(db, "slow", "draining")
    flow = new_flow("ab")
    slow = changed(flow, members=[*flow.members, member(flow.flow_id, "c", lane_id="slow")])
    before = await given.everything(db)

    with pytest.raises(LaneNotAccepting):
        await ff_engine.submit_flows([new_flow(), slow])

    assert await given.everything(db) == before


async def test_a_flow_that_is_there_does_not_mind_a_lane_that_takes_nothing(
    db: Connection, ff_engine: Engine
) -> None:
    flow = new_flow("ab")
    slow = changed(flow, members=[*flow.members, member(flow.flow_id, "c", lane_id="slow")])
    await ff_engine.submit_flow(slow)
    await set_lane_state(db, "slow", "draining")

    assert (await ff_engine.submit_flow(slow)).repeated


async def test_of_two_at_once_one_submits_and_the_other_finds(
    db: Connection, another: Another
) -> None:
    flow, (first, second) = new_flow("abc", "a>b b>c"), (await another(), await another())
    async with first.transaction():
        created = await submit_flow(first, flow)
        waiting = await given.blocked(db, second, submit_flow(second, flow))
    found = await waiting

    assert (created.repeated, found.repeated) == (False, True)
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 3
    assert await db.fetchval("SELECT count(*) FROM ff.edge") == 2
