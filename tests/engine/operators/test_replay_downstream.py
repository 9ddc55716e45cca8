"""A replay of a member makes what was skipped because of it wait again, as far as it can run."""

from __future__ import annotations

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.joins import AnyOf, Quorum
from flowfabric.policy import ExecutionPolicy
from tests.engine.controls import Another, actions
from tests.engine.flows.graphs import Graph, done_or_waiting, submitted
from tests.engine.joins.invariants import broken_invariants


async def failed(engine: Engine, arrows: str, *names: str, **fields: object) -> Graph:
    """A flow whose members of these names have failed; the rest follows."""
    flow = await submitted(engine, arrows, **fields)  # type: ignore[arg-type]
    await flow.fail(*(names or ("a",)))
    await flow.carry_all()
    return flow


async def finish(flow: Graph, *names: str) -> str:
    """These members complete one after the other; the states of all."""
    for name in names:
        await flow.complete(name)
        await flow.carry_all()
    return await flow.states()


async def test_every_skipped_descendant_waits_again_and_runs(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await failed(ff_engine, "a>b b>c a>c c>d x>d")
    assert await flow.states() == "a:f b:k c:k d:k x:w"

    await ff_engine.replay_execution(flow["a"], actor="ann", reason="mended")

    assert await flow.states() == "a:w b:wc c:wc d:wc x:w"
    assert [await flow.group(name) for name in "bcd"] == [
        "0/0/0/1 pending",
        "0/0/0/2 pending",
        "0/0/0/2 pending",
    ]
    [action] = await actions(db, flow["d"])
    assert (action.event_type, action.actor, action.reason) == ("replayed", "ann", "mended")
    assert action.details["branch"] == "skipped_flow_member"
    assert await finish(flow, "a", "b", "c", "x", "d") == "a:ok b:ok c:ok d:ok x:ok"
    assert await flow.derived() == "completed"
    assert await broken_invariants(db) == {}


async def test_it_fails_again_and_they_are_skipped_again(db: Connection, ff_engine: Engine) -> None:
    flow = await failed(ff_engine, "a>b b>c")

    await flow.replay("a")
    await flow.fail("a")
    await flow.carry_all()

    assert await flow.states() == "a:f b:k c:k"
    assert await flow.told("c") == ["skipped", "skipped"]
    assert await broken_invariants(db) == {}


async def test_without_downstream_they_stay_and_the_flow_is_not_completed(
    ff_engine: Engine,
) -> None:
    flow = await failed(ff_engine, "a>b b>c")

    await ff_engine.replay_execution(flow["a"], downstream=False)
    assert await flow.states() == "a:w b:k c:k"
    assert await finish(flow, "a") == "a:ok b:k c:k"

    assert await flow.derived() == "failed"


async def test_one_that_another_failure_holds_stays_until_that_runs_again_too(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await failed(ff_engine, "a>d b>d d>e", "a", "b")

    await flow.replay("a")
    assert await flow.states() == "a:w b:f d:k e:k"
    assert (await flow.row("d"))["replay_count"] == 0
    await finish(flow, "a")
    await flow.replay("b")

    assert await flow.states() == "a:ok b:w d:wc e:wc"
    assert await flow.group("d") == "1/0/0/1 pending"
    assert await finish(flow, "b", "d", "e") == "a:ok b:ok d:ok e:ok"
    assert await broken_invariants(db) == {}


async def test_one_that_needs_one_of_several_waits_for_those_that_run(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await failed(ff_engine, "a>d b>d d>e", "a", "b", policies={"d": AnyOf()})

    await flow.replay("a")

    assert await flow.states() == "a:w b:f d:wc e:wc"
    assert await flow.group("d") == "0/1/0/1 pending"
    await flow.fail("a")
    await flow.carry_all()
    assert await flow.states() == "a:f b:f d:k e:k"
    assert await broken_invariants(db) == {}


async def test_one_that_was_replayed_too_often_stays_skipped_and_so_do_those_below(
    ff_engine: Engine,
) -> None:
    once = {"policy": ExecutionPolicy(max_replay_count=0)}
    flow = await failed(ff_engine, "a>b b>c", fields={"b": once})

    await flow.replay("a")

    assert await flow.states() == "a:w b:k c:k"


async def test_a_skipped_member_takes_those_below_with_it(ff_engine: Engine) -> None:
    flow = await failed(ff_engine, "a>b b>c")

    assert await flow.replay("b") == "waiting_children"

    assert await flow.states() == "a:f b:wc c:wc"


# Completions of before the replay.


async def test_a_failure_that_was_not_dispatched_yet_does_not_skip_them(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b b>c")
    await flow.fail("a")

    await flow.replay("a")
    await flow.carry_all()

    assert await flow.states() == "a:w b:wc c:wc"
    assert await finish(flow, "a", "b", "c") == "a:ok b:ok c:ok"
    assert await broken_invariants(db) == {}


async def test_a_skip_that_was_not_dispatched_yet_does_not_go_on(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b b>c c>d")
    await flow.fail("a")
    await flow.carry()
    assert await flow.states() == "a:f b:k c:wc d:wc"

    await flow.replay("a")
    await flow.carry_all()

    assert await flow.states() == "a:w b:wc c:wc d:wc"
    assert await finish(flow, "a", "b", "c", "d") == "a:ok b:ok c:ok d:ok"
    assert await broken_invariants(db) == {}


async def test_one_that_still_waits_counts_a_replayed_upstream_as_running(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await failed(ff_engine, "a>d b>d", policies={"d": AnyOf()})
    assert await flow.group("d") == "0/1/0/1 pending"

    await flow.replay("a")
    assert await flow.group("d") == "0/0/0/2 pending"
    await flow.fail("b")
    await flow.carry_all()

    assert await finish(flow, "a") == "a:ok b:f d:w"
    assert await broken_invariants(db) == {}


async def test_a_join_that_was_satisfied_without_it_stays_as_it_is(ff_engine: Engine) -> None:
    flow = await failed(ff_engine, "a>d b>d", policies={"d": AnyOf("let_run")})
    await finish(flow, "b")

    await flow.replay("a")

    assert await flow.group("d") == "1/1/0/0 satisfied"
    assert await finish(flow, "a", "d") == "a:ok b:ok d:ok"


async def test_siblings_that_were_listed_for_the_lost_join_are_not_cancelled(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await failed(ff_engine, "a>d b>d", policies={"d": Quorum(2)})
    assert (await flow.group_row("d"))["cancel_siblings_pending_flag"]

    await flow.replay("a")
    await flow.tick()

    assert await flow.states() == "a:w b:w d:wc"
    assert await broken_invariants(db) == {}


async def test_results_that_came_while_it_was_skipped_are_passed(ff_engine: Engine) -> None:
    own = {"d": {"input_payload": b"own"}}
    flow = await failed(ff_engine, "a>d b>d", refs=["b>d"], fields=own)
    await flow.complete("b", result=b"R")
    await flow.carry_all()

    await flow.replay("a")
    await finish(flow, "a")

    assert await flow.state("d") == "waiting"
    assert await flow.payload("d") == b"R"


# At the same time.


async def test_replays_of_two_causes_at_once_do_not_miss_what_waits_for_both(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await failed(ff_engine, "a>d b>d d>e", "a", "b")
    operator = await another()

    async with operator.transaction():
        await replay_execution(operator, flow["a"])
        other = await done_or_waiting(db, ff_engine.replay_execution(flow["b"]))
    await other

    assert await flow.states() == "a:w b:w d:wc e:wc"


async def test_a_skip_that_goes_on_meanwhile_is_taken_back(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>b b>c c>d")
    await flow.fail("a")
    await flow.carry()
    carrier = await another()

    async with carrier.transaction():
        await dispatch_completions(carrier)
        replaying = await done_or_waiting(db, ff_engine.replay_execution(flow["a"]))
    await replaying
    await flow.carry_all()

    assert await flow.states() == "a:w b:wc c:wc d:wc"
    assert await broken_invariants(db) == {}


@pytest.mark.parametrize("first", ["ab", "ba"])
async def test_a_batch_takes_what_waits_for_several_of_it(ff_engine: Engine, first: str) -> None:
    flow = await failed(ff_engine, "a>d b>d d>e", "a", "b")

    await ff_engine.replay_executions([flow[name] for name in first])

    assert await flow.states() == "a:w b:w d:wc e:wc"
