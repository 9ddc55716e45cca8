"""What one flow is, and where it stands."""

from uuid import uuid4

import pytest

from bench.flow_graphs import random_edges, submit
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.describe_flow import EdgeGroupSnapshot, MemberCounts, describe_flow
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.ids import member_group_id
from flowfabric.joins import AllOf, AnyOf, Quorum
from flowfabric.states import CancellationPolicy, FlowState, GroupState, WaitsAs
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.flows.graphs import Graph, empty, fan_in, submitted
from tests.explained import Explained

NOBODY = dict.fromkeys(MemberCounts.__struct_fields__, 0)


async def test_a_flow_that_is_not_there_is_none(ff_engine: Engine) -> None:
    assert await ff_engine.describe_flow(uuid4()) is None


async def test_an_empty_flow(ff_engine: Engine, clock: Clock) -> None:
    flow_id = uuid4()
    await ff_engine.create_flow(
        flow_id, flow_kind="order", namespace="shop", tags={"z.a": "1", "a.z": "2"}
    )

    found = await ff_engine.describe_flow(flow_id)

    assert found is not None
    now = await clock.now()
    assert (found.flow_id, found.flow_kind, found.namespace) == (flow_id, "order", "shop")
    assert (found.public_flow_state, found.derived_state) == (FlowState.OPEN, "open")
    assert (found.graph_revision, found.node_count, found.edge_count) == (0, 0, 0)
    assert (found.created_at, found.last_mutation_at, found.cancelled_at) == (now, now, None)
    assert found.cancel_reason is found.cancellation_policy is None
    assert list(found.tags.items()) == [("a.z", "2"), ("z.a", "1")]
    assert found.members == MemberCounts(**NOBODY)
    assert found.edge_groups == []


async def test_groups_come_in_the_order_of_their_downstreams(ff_engine: Engine) -> None:
    flow = await submitted(
        ff_engine,
        "a>x b>x a>y b>y c>y a>z",
        policies={"x": AnyOf("let_run"), "y": Quorum(2, "let_run")},
    )
    await flow.complete("a")
    await flow.fail("b")
    await flow.carry_all()

    found = await ff_engine.describe_flow(flow.flow_id)

    assert found is not None
    numbers = [
        ("x", AnyOf("let_run"), 2, 1, 1, 0, 0, GroupState.SATISFIED),
        ("y", Quorum(2, "let_run"), 3, 1, 1, 0, 1, GroupState.PENDING),
        ("z", AllOf(), 1, 1, 0, 0, 0, GroupState.SATISFIED),
    ]
    assert found.edge_groups == [
        EdgeGroupSnapshot(
            group_id=member_group_id(flow[name]),
            downstream_execution_id=flow[name],
            waits_as=WaitsAs.MEMBER,
            policy=policy,
            total_deps=n,
            satisfied_count=s,
            failed_count=f,
            skipped_count=x,
            running_count=u,
            group_state=state,
        )
        for name, policy, n, s, f, x, u, state in sorted(numbers, key=lambda row: flow[row[0]])
    ]


async def test_a_cancelled_flow_says_when_and_why(ff_engine: Engine, clock: Clock) -> None:
    flow = await submitted(ff_engine, "a>b")
    await clock.advance(5)
    await ff_engine.cancel_flow(flow.flow_id, reason="enough", policy="cancel_pending")

    found = await ff_engine.describe_flow(flow.flow_id)

    assert found is not None
    assert found.public_flow_state is FlowState.CANCELLED
    assert found.cancelled_at == await clock.now()
    assert found.cancel_reason == "enough"
    assert found.cancellation_policy is CancellationPolicy.CANCEL_PENDING
    assert (found.graph_revision, found.node_count, found.edge_count) == (3, 2, 1)


async def test_members_are_counted_by_where_they_stand(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(
        ff_engine,
        "ok1 ok2 f c e k a w1 w2 w3 q d w1>wc",
        fields={"d": {"delay": 60}},
    )
    await flow.complete("ok1", "ok2")
    await flow.fail("f")
    await flow.cancel("c")
    await flow.end("e", "E")
    await flow.end("k", "K")
    await flow.claim("a")
    await block_execution_for_admission(db, flow["q"], "waiting_for_quota")
    await block_execution_for_admission(db, flow["w3"], "paused_by_operator")

    found = await ff_engine.describe_flow(flow.flow_id)

    assert found is not None
    assert found.members == MemberCounts(
        **NOBODY
        | {
            "total": 13,
            "completed": 2,
            "failed": 1,
            "cancelled": 1,
            "expired": 1,
            "skipped": 1,
            "active": 1,
            "waiting": 3,
            "rate_limited": 1,
            "delayed": 1,
            "waiting_children": 1,
        }
    )


# Where a flow stands.


async def test_what_is_asked_first_counts(db: Connection, ff_engine: Engine, clock: Clock) -> None:
    flow = await submitted(ff_engine, "a b")
    assert await flow.derived() == "open"

    await flow.claim("a")
    assert await flow.derived() == "running"

    await block_execution_for_admission(db, flow["b"], "waiting_for_quota")
    assert await flow.derived() == "running"

    await flow.complete("a")
    assert await flow.derived() == "blocked"

    await flow.cancel("b")
    assert await flow.derived() == "failed"


@pytest.mark.parametrize("held", ["delayed", "waiting_children", "rate_limited"])
async def test_a_flow_is_blocked_while_nobody_runs_and_somebody_is_held_back(
    db: Connection, ff_engine: Engine, clock: Clock, held: str
) -> None:
    flow = await submitted(ff_engine, "a b>c" if held == "waiting_children" else "a b")
    if held == "delayed":
        flow = await submitted(ff_engine, "a b", fields={"b": {"delay": 60}})
    elif held == "rate_limited":
        await block_execution_for_admission(db, flow["b"], "waiting_for_budget")

    assert await flow.derived() == "blocked"


@pytest.mark.parametrize("state", ["suspended", "resumable"])
async def test_what_is_suspended_or_may_resume_counts_as_suspended(
    db: Connection, ff_engine: Engine, state: str
) -> None:
    flow = await submitted(ff_engine, "a b")
    [lease] = await flow.claim("a")
    await ff_engine.release([lease])
    flow.leases.clear()
    column = (
        "resume_pending = true"
        if state == "resumable"
        else "lifecycle_phase = 'suspended', eligibility_state = 'not_applicable'"
    )
    await db.execute(f"UPDATE ff.exec_core SET {column} WHERE execution_id = $1", flow["a"].uuid)

    found = await ff_engine.describe_flow(flow.flow_id)

    assert found is not None
    assert (found.members.suspended, found.derived_state) == (1, "blocked")


async def ended(engine: Engine, arrows: str, ends: dict[str, str], **fields: object) -> Graph:
    """A flow whose members have ended as said; the rest follows."""
    flow = await submitted(engine, arrows, **fields)  # type: ignore[arg-type]
    for name, letter in ends.items():
        await flow.end(name, letter)
        await engine.dispatch()
    return flow


@pytest.mark.parametrize("letter", list("FCE"))
async def test_a_failure_that_nothing_made_up_for_is_the_flows(
    ff_engine: Engine, letter: str
) -> None:
    for arrows in ("a b", "a>c b"):
        flow = await ended(ff_engine, arrows, {"b": "S", "a": letter})
        assert await flow.derived() == "failed"


async def test_a_skip_alone_is_no_failure(ff_engine: Engine) -> None:
    flow = await ended(ff_engine, "a b", {"a": "S", "b": "K"})

    assert await flow.derived() == "completed"


async def test_losers_of_a_race_are_absorbed(ff_engine: Engine) -> None:
    flow = await ended(
        ff_engine, fan_in(4), {"u1": "F", "u2": "E", "u3": "S", "d": "S"}, policies={"d": AnyOf()}
    )

    assert await flow.states() == "d:ok u1:f u2:e u3:ok u4:c"
    assert await flow.derived() == "completed"


@pytest.mark.parametrize(
    ("arrows", "ends", "states", "state"),
    [
        pytest.param(
            "u1>d u2>d u2>other", "u2:F u1:S d:S", "d:ok other:k u1:ok u2:f", "failed",
            id="one that also fed a join that failed is not absorbed",
        ),
        pytest.param(
            "f>l v>l l>d w>d", "f:F w:S d:S", "d:ok f:f l:k v:c w:ok", "completed",
            id="a failure inside a losing arm is absorbed across skipped members",
        ),
        pytest.param(
            "s>f f>l l>d w>d s>w", "s:S f:F w:S d:S", "d:ok f:f l:k s:ok w:ok", "completed",
            id="also where the arms share a member",
        ),
        pytest.param(
            "a1>a2 a2>d b1>b2 b2>d", "a1:S a2:S d:S", "a1:ok a2:ok b1:c b2:c d:ok", "completed",
            id="an arm that was cancelled is absorbed",
        ),
        pytest.param(
            "p>in q>in in>l l>d w>d", "p:F q:F w:S d:S", "d:ok in:k l:k p:f q:f w:ok", "completed",
            id="a race that was lost inside a losing arm is absorbed",
        ),
        pytest.param(
            "f>l l>d w>d", "f:F w:F", "d:k f:f l:k w:f", "failed",
            id="failures of every arm are not absorbed",
        ),
        pytest.param(
            "f>l l>d w>d l>other", "f:F w:S d:S", "d:ok f:f l:k other:k w:ok", "failed",
            id="a skip that reaches a last member is not absorbed",
        ),
        pytest.param(
            "w>d l>d", "w:S d:F", "d:f l:c w:ok", "failed",
            id="a failure after the race counts",
        ),
    ],
)  # fmt: skip
async def test_a_failure_is_absorbed_if_all_it_led_to_was_satisfied_without_it(
    ff_engine: Engine, arrows: str, ends: str, states: str, state: str
) -> None:
    letters = dict(each.split(":") for each in ends.split())
    races = {name: AnyOf() for name in ("d", "in") if f">{name}" in arrows}
    flow = await ended(ff_engine, arrows, letters, policies=races)

    assert await flow.states() == states
    assert await flow.derived() == state


@pytest.mark.parametrize(
    ("arrows", "ends", "outcomes"),
    [
        pytest.param("w>d l>d", "w:S d:S l:S", "None completed completed", id="let run"),
        pytest.param("w>d s>l l>d", "w:S d:S s:F", "None completed completed", id="an arm let run"),
        pytest.param("b>d c>d", "b:F c:S", "failed failed", id="after a failure of an all-of"),
        pytest.param("b>d c>d c>e", "b:F c:S e:S", "None None failed", id="another last member"),
        pytest.param("a>b", "a:S b:S", "None completed", id="a chain"),
        pytest.param("a b", "a:S b:S", "None completed", id="single members"),
    ],
)
async def test_the_outcome_is_known_once_nothing_needed_is_left_to_run(
    ff_engine: Engine, arrows: str, ends: str, outcomes: str
) -> None:
    races = {"d": AnyOf("let_run")} if "w>d" in arrows else {}
    flow = await submitted(ff_engine, arrows, policies=races)
    seen: list[str] = []
    for each in ends.split():
        name, letter = each.split(":")
        await flow.end(name, letter)
        await ff_engine.dispatch()
        found = await ff_engine.describe_flow(flow.flow_id)
        assert found is not None
        seen.append(str(found.outcome))

    assert " ".join(seen) == outcomes


async def test_an_edge_that_was_never_applied_absorbs_nothing(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "d")
    await flow.stage("a>d")
    await flow.fail("a")
    await flow.complete("d")
    await flow.carry_all()

    assert await flow.derived() == "failed"


async def test_a_flow_that_was_done_goes_on_with_a_new_member(ff_engine: Engine) -> None:
    flow = await ended(ff_engine, "a", {"a": "S"})
    assert await flow.derived() == "completed"

    await flow.add("b")

    assert await flow.derived() == "open"


async def test_row_and_groups_are_of_one_moment(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>b")
    other = await another()
    async with db.transaction(isolation="repeatable_read"):
        await db.fetch("SELECT 1 FROM ff.flow_core")
        await given.created(other)
        await flow.complete("a")
        await flow.carry_all()
        found = await describe_flow(db, flow.flow_id)

    assert found is not None
    assert (found.derived_state, found.edge_groups[0].running_count) == ("blocked", 1)


@pytest.mark.session("reads the plan of a session with our settings")
async def test_a_large_flow_that_statistics_do_not_know_costs_some_pages_a_member(
    ff_engine: Engine, db: Connection
) -> None:
    edges = random_edges(1, 400, 800)
    names = {name for edge in edges for name in edge}
    await submit(ff_engine, "before", [("a", "b")], lane="l")
    await db.execute("VACUUM ANALYZE")
    flow_id, members = await submit(
        ff_engine, "large", edges, lane="l", kinds=dict.fromkeys(names, "job")
    )

    for generic in (True, False):
        explained = Explained(db, generic=generic)
        found = await describe_flow(explained, flow_id)  # type: ignore[arg-type]
        assert found is not None
        assert found.members.total == len(members)
        assert max(cost.buffers for cost in explained.costs) < 5 * len(members), explained.costs
