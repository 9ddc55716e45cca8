"""A member runs again; one that was skipped waits for its upstreams first."""

from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.errors import (
    ExecutionNotTerminal,
    FlowAlreadyTerminal,
    MaxReplaysExhausted,
    NotFound,
)
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.policy import ExecutionPolicy
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another, actions
from tests.engine.flows.graphs import Graph, done_or_waiting, empty, fan_in, minted, submitted


async def skipped(engine: Engine, arrows: str = "a>d b>d", **fields: object) -> Graph:
    """A flow whose member d was skipped because a failed."""
    flow = await submitted(engine, arrows, **fields)  # type: ignore[arg-type]
    await flow.fail("a")
    await flow.carry_all()
    assert await flow.state("d") == "skipped"
    return flow


# One that ran.


@pytest.mark.parametrize("letter", list("SFCE"))
async def test_one_that_was_not_skipped_runs_at_once(
    db: Connection, ff_engine: Engine, letter: str
) -> None:
    flow = await submitted(ff_engine, "a>d d>e")
    await flow.complete("a")
    await flow.carry_all()
    await flow.end("d", letter)
    await flow.carry_all()
    group, edge = await flow.group_row("d"), await flow.edge("a>d")

    assert await flow.replay("d") == "waiting"

    assert await flow.group_row("d") == group
    assert await flow.edge("a>d") == edge
    [action] = [each for each in await actions(db, flow["d"]) if each.event_type == "replayed"]
    assert action.details["branch"] == "normal"
    assert "groups_reset" not in action.details
    assert (await flow.states()).split()[1] == "d:w"


async def test_what_depended_on_it_is_not_reopened_without_downstream(ff_engine: Engine) -> None:
    flow = await skipped(ff_engine)
    await flow.replay("a", downstream=False)
    await flow.complete("a")
    await flow.carry_all()

    assert await flow.states() == "a:ok b:w d:k"
    assert await flow.group("d") == "0/1/0/1 impossible"
    assert (await flow.edge("a>d"))["resolution"] == "impossible"


async def test_a_satisfied_edge_stays_satisfied_whatever_follows(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d b>d")
    await flow.complete("a")
    await flow.carry_all()
    await flow.replay("a")
    await flow.fail("a")
    await flow.carry_all()

    assert await flow.group("d") == "1/0/0/1 pending"


# One that was skipped.


async def test_one_that_was_skipped_waits_again(db: Connection, ff_engine: Engine) -> None:
    flow = await skipped(ff_engine)
    failed_at = await db.fetchval("SELECT min(event_id) FROM ff.completion_event")

    assert await flow.replay("d") == "waiting_children"

    assert await given.vector(db, flow["d"]) == (
        "runnable",
        "blocked_by_dependencies",
        "waiting_for_children",
        "none",
        "pending_replay_attempt",
        "waiting_children",
    )
    row = await flow.row("d")
    assert (row["replay_count"], row["failure_reason"], row["terminal_at_ms"]) == (1, None, None)
    assert await flow.group("d") == "0/0/0/2 pending"
    assert (await flow.group_row("d"))["fired_at_ms"] is None
    edge = await flow.edge("a>d")
    assert (edge["resolution"], edge["resolved_outcome"]) == ("unresolved", None)
    assert (edge["resolved_event_id"], edge["min_event_id"]) == (None, failed_at)
    [action] = await actions(db, flow["d"])
    assert action.details["branch"] == "skipped_flow_member"
    assert action.details["groups_reset"] == 1


async def test_one_whose_quorum_cannot_be_reached_is_skipped_again_and_says_so(
    ff_engine: Engine,
) -> None:
    flow = await empty(ff_engine, "a", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], Quorum(2))
    await flow.link("a>d")
    await flow.complete("a")
    await flow.carry_all()
    assert await flow.group("d") == "1/0/0/0 impossible"

    assert await flow.replay("d") == "skipped"

    assert await flow.state("d") == "skipped"
    assert await flow.told("d") == ["skipped", "skipped"]


async def test_the_old_failure_is_not_used_again(ff_engine: Engine) -> None:
    flow = await skipped(ff_engine)
    await flow.complete("b")
    await flow.carry_all()
    await flow.replay("d")
    assert await flow.group("d") == "1/0/0/1 pending"

    await ff_engine.dispatch()

    assert await flow.state("d") == "waiting_children"


async def test_an_end_that_was_told_but_not_carried_is_old_too(ff_engine: Engine) -> None:
    flow = await skipped(ff_engine)
    await flow.replay("a", downstream=False)
    await flow.fail("a")

    await flow.replay("d")
    await flow.carry_all()

    assert await flow.group("d") == "0/0/0/2 pending"


@pytest.mark.parametrize("first", ["a", "d"])
async def test_either_may_be_replayed_first(ff_engine: Engine, first: str) -> None:
    flow = await skipped(ff_engine)
    await flow.complete("b")
    await flow.carry_all()
    for name in (first, "ad".replace(first, "")):
        await flow.replay(name, downstream=False)
    await flow.complete("a")
    await flow.carry_all()

    assert await flow.states() == "a:ok b:ok d:w"
    assert await flow.group("d") == "2/0/0/0 satisfied"


async def test_an_upstream_that_has_succeeded_since_counts_at_once(ff_engine: Engine) -> None:
    flow = await skipped(ff_engine)
    await flow.complete("b")
    await flow.replay("a", downstream=False)
    await flow.complete("a")
    await flow.carry_all()

    assert await flow.replay("d") == "waiting"

    assert await flow.states() == "a:ok b:ok d:w"
    assert await flow.group("d") == "2/0/0/0 satisfied"
    await flow.complete("d")
    await flow.carry_all()


async def test_the_result_of_such_an_upstream_is_passed_on(ff_engine: Engine) -> None:
    flow = await skipped(ff_engine, "a>d", refs=["a>d"], fields={"d": {"input_payload": b"own"}})
    await flow.replay("a", downstream=False)
    await flow.complete("a", result=b"R")
    await flow.carry_all()

    assert await flow.replay("d") == "waiting"

    assert await flow.payload("d") == b"R"


async def test_one_of_several_upstreams_that_has_succeeded_since(ff_engine: Engine) -> None:
    flow = await skipped(ff_engine, fan_in(2) + " a>d")
    await flow.replay("a", downstream=False)
    await flow.complete("a")
    await flow.carry_all()

    assert await flow.replay("d") == "waiting_children"

    assert await flow.group("d") == "1/0/0/2 pending"


async def test_it_may_be_skipped_again(ff_engine: Engine) -> None:
    flow = await skipped(ff_engine, "a>d d>e")
    await flow.replay("d", downstream=False)
    await flow.replay("a")
    await flow.fail("a")
    await flow.carry_all()

    assert await flow.states() == "a:f d:k e:k"
    assert await flow.told("d") == ["skipped", "skipped"]
    assert await flow.told("e") == ["skipped"]


async def test_those_below_are_replayed_from_the_top(ff_engine: Engine) -> None:
    flow = await skipped(ff_engine, "a>d d>e")
    for name in "ade":
        await flow.replay(name, downstream=False)
    for name in "ade":
        await flow.complete(name)
        await flow.carry_all()

    assert await flow.states() == "a:ok d:ok e:ok"
    assert await flow.derived() == "completed"


@pytest.mark.parametrize(
    ("policy", "reset"),
    [
        (AllOf(), "1/0/0/3 pending"),
        (Quorum(3, "let_run"), "1/0/0/3 pending"),
        (Quorum(3), "1/0/0/3 pending"),
    ],
)
async def test_every_bucket_is_reset_but_the_satisfied(
    ff_engine: Engine, policy: JoinPolicy, reset: str
) -> None:
    flow = await submitted(ff_engine, fan_in(4), policies={"d": policy})
    for name, letter in (("u1", "S"), ("u2", "F"), ("u3", "K"), ("u4", "C")):
        await flow.end(name, letter)
        await flow.carry_all()
    assert await flow.group("d") == "1/2/1/0 impossible"

    await flow.replay("d")

    assert await flow.group("d") == reset
    await flow.tick()


async def test_a_race_that_nobody_won_is_won_by_a_replay(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, fan_in(2), policies={"d": AnyOf()})
    await flow.fail("u1", "u2")
    await flow.carry_all()
    await flow.replay("d")
    await flow.replay("u1")
    await flow.complete("u1")
    await ff_engine.dispatch()

    assert await flow.states() == "d:w u1:ok u2:f"
    assert await flow.group("d") == "1/0/0/1 satisfied"


# Refusals.


async def test_one_that_is_not_there(ff_engine: Engine) -> None:
    with pytest.raises(NotFound):
        await ff_engine.replay_execution(minted(uuid4()))


async def test_one_that_has_not_ended(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d")
    before = await given.everything(db)
    for name in "ad":
        with pytest.raises(ExecutionNotTerminal):
            await flow.replay(name)
    assert await given.everything(db) == before


async def test_a_member_of_a_cancelled_flow(db: Connection, ff_engine: Engine) -> None:
    flow = await skipped(ff_engine)
    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_flow_only")
    before = await given.everything(db)
    for name in "ad":
        with pytest.raises(FlowAlreadyTerminal):
            await flow.replay(name)
    assert await given.everything(db) == before


async def test_only_so_often(db: Connection, ff_engine: Engine) -> None:
    policy = ExecutionPolicy(max_replay_count=2)
    flow = await submitted(ff_engine, "a>d", fields={"d": {"policy": policy}})
    await flow.fail("a")
    await flow.carry_all()
    for _ in range(2):
        await flow.replay("d")
        await flow.replay("a")
        await flow.fail("a")
        await flow.carry_all()
    assert await flow.state("d") == "skipped"
    before = await given.everything(db)

    with pytest.raises(MaxReplaysExhausted):
        await flow.replay("d")

    assert await given.everything(db) == before


async def test_one_that_stands_alone_is_replayed_as_ever(db: Connection, ff_engine: Engine) -> None:
    execution_id: ExecutionId = await given.created(db)
    await ff_engine.cancel_execution(execution_id, reason="no")

    replayed = await ff_engine.replay_execution(execution_id)

    assert replayed.public_state == "waiting"


# Beside a dispatcher.


async def test_a_dispatch_that_waits_for_the_reset_resolves_the_edge(
    db: Connection, ff_engine: Engine, another: Another, clock: Clock
) -> None:
    flow = await skipped(ff_engine)
    await flow.complete("b")
    operator, carrier = await another(), await another()

    async def carry() -> int:
        async with carrier.transaction():
            return await dispatch_completions(carrier)

    async with operator.transaction():
        await replay_execution(operator, flow["d"])
        carrying = await given.blocked(db, carrier, carry())
    await carrying

    assert await flow.group("d") == "1/0/0/1 pending"
    assert await flow.state("d") == "waiting_children"


async def test_an_upstream_that_ends_during_the_reset_is_not_missed(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    """The upstream runs again and ends, and its end is carried, before the reset is committed."""
    flow = await skipped(ff_engine, "a>d")
    await flow.replay("a", downstream=False)
    await flow.claim("a")
    operator = await another()
    async with operator.transaction():
        await replay_execution(operator, flow["d"])
        ending = await done_or_waiting(db, flow.complete("a"))
        await flow.carry_all()
    await ending
    await flow.carry_all()

    assert await flow.states() == "a:ok d:w"


# Several at once.


async def skipped_twice(engine: Engine) -> Graph:
    """`b` needs three successes and has two upstreams, so it is skipped whenever it is decided."""
    flow = await empty(engine, "b", "c", "d", "u1", "u2")
    await engine.set_edge_group_policy(flow.flow_id, flow["b"], Quorum(3, "let_run"))
    await flow.link("u1>b", "u2>b", "b>c", "c>d")
    await flow.complete("u1", "u2")
    await flow.carry_all()
    assert await flow.states() == "b:k c:k d:k u1:ok u2:ok"
    return flow


async def standing_after(flow: Graph) -> tuple[str, list[str]]:
    """The members, and the joins below, once every completion is dispatched."""
    await flow.engine.dispatch()
    return await flow.states(), [await flow.group(name) for name in "bcd"]


async def test_a_batch_leaves_what_replays_from_the_top_down_leave(ff_engine: Engine) -> None:
    apart, together = await skipped_twice(ff_engine), await skipped_twice(ff_engine)
    for name in "bcd":
        await apart.replay(name, downstream=False)

    await ff_engine.replay_executions([together[name] for name in "bcd"])

    assert await standing_after(together) == await standing_after(apart)
    assert await together.states() == "b:k c:wc d:wc u1:ok u2:ok"


async def test_the_order_of_a_batch_does_not_matter(ff_engine: Engine) -> None:
    down, up = await skipped_twice(ff_engine), await skipped_twice(ff_engine)

    await ff_engine.replay_executions([down[name] for name in "bcd"])
    await ff_engine.replay_executions([up[name] for name in "dcb"])

    assert await standing_after(up) == await standing_after(down)
