"""A flow is replayed: what it lacks runs again, and what was skipped for that waits again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.steps import stepped
from flowfabric.engine.engine import Engine
from flowfabric.engine.operators import replay_flow as module
from flowfabric.engine.operators.replay_flow import ReplayedFlow
from flowfabric.errors import FlowAlreadyTerminal, NotFound, TransportError, ValidationError
from flowfabric.joins import AnyOf, Quorum
from flowfabric.policy import ExecutionPolicy
from tests import given
from tests.engine.controls import actions
from tests.engine.flows.graphs import Graph, fan_in, submitted
from tests.engine.joins import parents
from tests.engine.joins.invariants import broken_invariants


async def after(engine: Engine, arrows: str, ends: str, **fields: object) -> Graph:
    """A flow whose members have ended as `a:S b:F` says; the rest follows."""
    flow = await submitted(engine, arrows, **fields)  # type: ignore[arg-type]
    for end in ends.split():
        name, letter = end.split(":")
        await flow.end(name, letter)
        await engine.dispatch()
    return flow


def said(flow: Graph, answer: ReplayedFlow) -> tuple[list[str], list[str], list[str]]:
    """The names of those that run again, wait again and stay."""
    runs, waits, stay = (
        flow.named([each.execution_id for each in some])
        for some in (answer.run_again, answer.wait_again, answer.stay)
    )
    return runs, waits, stay


async def run_on(flow: Graph, *names: str) -> str:
    for name in names:
        await flow.complete(name)
        await flow.engine.dispatch()
    return await flow.states()


# What runs again.


@pytest.mark.parametrize("letter", list("FEC"))
async def test_what_failed_expired_or_was_cancelled_and_what_was_skipped_for_it(
    db: Connection, ff_engine: Engine, letter: str
) -> None:
    flow = await after(ff_engine, "a>b b>c x>c y", f"x:S a:{letter} y:S")
    assert await flow.derived() == "failed"

    answer = await ff_engine.replay_flow(flow.flow_id, actor="ann", reason="mended")

    assert said(flow, answer) == (["a"], ["b", "c"], [])
    assert await flow.states() == "a:w b:wc c:wc x:ok y:ok"
    assert await flow.group("c") == "1/0/0/1 pending"
    assert await run_on(flow, "a", "b", "c") == "a:ok b:ok c:ok x:ok y:ok"
    assert await flow.derived() == "completed"
    assert await broken_invariants(db) == {}
    [event] = await db.fetch("SELECT * FROM ff.operator_event WHERE event_type = 'flow_replayed'")
    assert (event["flow_id"], event["actor"], event["reason"]) == (flow.flow_id, "ann", "mended")
    assert [each.actor for each in await actions(db, flow["c"])] == ["ann"]


async def test_a_preview_says_what_a_replay_does_and_changes_nothing(
    db: Connection, ff_engine: Engine
) -> None:
    never = {"policy": ExecutionPolicy(max_replay_count=0)}
    flow = await after(ff_engine, "a>b b>c n>m", "a:F n:F", fields={"n": never})
    before = await given.everything(db)

    preview = await ff_engine.replay_flow(flow.flow_id, preview=True)

    assert await given.everything(db) == before
    assert preview.preview
    assert said(flow, preview) == (["a"], ["b", "c"], ["m", "n"])
    answer = await ff_engine.replay_flow(flow.flow_id)
    assert said(flow, answer) == said(flow, preview)
    assert await flow.states() == "a:w b:wc c:wc m:k n:f"


async def test_a_second_call_finds_nothing_to_do(db: Connection, ff_engine: Engine) -> None:
    flow = await after(ff_engine, "a>b", "a:F")
    await ff_engine.replay_flow(flow.flow_id)
    before = await given.everything(db)

    again = await ff_engine.replay_flow(flow.flow_id)

    assert said(flow, again) == ([], [], [])
    assert await given.everything(db) == before


async def test_what_the_flow_did_without_stays_as_it_ended(ff_engine: Engine) -> None:
    """Of a race: one arm failed, one was cancelled as not needed, and the end after it failed."""
    flow = await after(
        ff_engine, "r>u1 " + fan_in(3) + " d>e", "r:F u2:S d:S e:F", policies={"d": AnyOf()}
    )
    assert await flow.states() == "d:ok e:f r:f u1:k u2:ok u3:c"

    answer = await ff_engine.replay_flow(flow.flow_id)

    assert said(flow, answer) == (["e"], [], [])
    assert await flow.states() == "d:ok e:w r:f u1:k u2:ok u3:c"


async def test_upstreams_that_were_cancelled_because_a_join_was_lost_run_again(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await after(ff_engine, fan_in(3), "u1:F", policies={"d": Quorum(3)})
    assert await flow.states() == "d:k u1:f u2:c u3:c"

    answer = await ff_engine.replay_flow(flow.flow_id)

    assert said(flow, answer) == (["u1", "u2", "u3"], ["d"], [])
    assert await run_on(flow, "u1", "u2", "u3") == "d:w u1:ok u2:ok u3:ok"
    assert await broken_invariants(db) == {}


async def test_one_that_was_cancelled_while_it_waited_waits_again(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await after(ff_engine, "a>b b>c", "b:C a:F")

    answer = await ff_engine.replay_flow(flow.flow_id)

    assert said(flow, answer) == (["a"], ["b", "c"], [])
    assert await run_on(flow, "a", "b") == "a:ok b:ok c:w"
    assert await broken_invariants(db) == {}


async def test_one_that_was_cancelled_before_its_upstream_succeeded_gets_the_result(
    ff_engine: Engine,
) -> None:
    flow = await submitted(ff_engine, "a>b", refs=["a>b"])
    await flow.cancel("b")
    await flow.complete("a", result=b"R")
    await ff_engine.dispatch()

    await ff_engine.replay_flow(flow.flow_id)

    assert await flow.states() == "a:ok b:w"
    assert await flow.payload("b") == b"R"


async def test_what_was_skipped_for_a_cause_that_has_succeeded_since_runs(
    ff_engine: Engine,
) -> None:
    flow = await after(ff_engine, "a>b b>c", "a:F")
    await flow.replay("a", downstream=False)
    await run_on(flow, "a")
    assert (await flow.states(), await flow.derived()) == ("a:ok b:k c:k", "failed")

    answer = await ff_engine.replay_flow(flow.flow_id)

    assert said(flow, answer) == (["b"], ["c"], [])
    assert await run_on(flow, "b", "c") == "a:ok b:ok c:ok"
    assert await flow.derived() == "completed"


async def test_the_rest_of_the_flow_runs_on(ff_engine: Engine) -> None:
    flow = await after(ff_engine, "a>b x>y", "a:F")
    await flow.claim("x")

    await ff_engine.replay_flow(flow.flow_id)

    assert await flow.states() == "a:w b:wc x:a y:wc"


# Children.


async def test_a_child_runs_again_with_its_parent(db: Connection, ff_engine: Engine) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab")
    await family.put_down()
    await family.fail("a")
    await family.settle()
    await family.take_up()
    await family.fail("p")
    await family.settle()
    assert await family.states() == "a:f b:c p:f"

    answer = await ff_engine.replay_flow(family.flow_id)

    assert said(family, answer) == (["a", "p"], [], ["b"])
    assert [each.reason for each in answer.stay] == ["its parent starts it again"]
    await family.take_up()
    await family.spawn("ab")
    assert await family.waited() == "0/0/0/2 pending"


async def test_a_failed_child_of_a_parent_that_completed_stays_failed(
    db: Connection, ff_engine: Engine
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("a")
    await family.fail("a")
    await family.complete("p")
    await family.settle()

    assert said(family, await ff_engine.replay_flow(family.flow_id)) == ([], [], [])


# Cancelled flows.


async def test_a_cancelled_flow_is_open_again_with_its_members(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await after(ff_engine, "a>b b>c", "a:S")
    await ff_engine.cancel_flow(flow.flow_id, reason="by mistake")
    assert (await flow.states(), await flow.derived()) == ("a:ok b:c c:c", "cancelled")

    answer = await ff_engine.replay_flow(flow.flow_id)

    assert said(flow, answer) == (["b"], ["c"], [])
    assert await run_on(flow, "b", "c") == "a:ok b:ok c:ok"
    assert await flow.derived() == "completed"
    assert await broken_invariants(db) == {}


async def test_members_that_ran_on_after_a_cancel_are_retried_as_ever(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b x")
    [lease] = await flow.claim("a")
    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_pending")

    await ff_engine.replay_flow(flow.flow_id)
    await ff_engine.release([lease])
    flow.leases.clear()

    assert await flow.states() == "a:w b:wc x:w"
    assert await run_on(flow, "a", "b", "x") == "a:ok b:ok x:ok"
    assert await broken_invariants(db) == {}


async def test_while_the_cancel_has_members_to_end_it_is_refused(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await after(ff_engine, "a>b x", "a:F")
    await ff_engine.cancel_flow(flow.flow_id, wait=None)
    before = await given.everything(db)

    with pytest.raises(FlowAlreadyTerminal, match="1 of its members") as refused:
        await ff_engine.replay_flow(flow.flow_id)

    assert refused.value.pending == 1
    assert await given.everything(db) == before


# A transaction for each slice.


class Between:
    """Does something once, before the second slice of a replay is locked."""

    def __init__(self, action: Callable[[], Awaitable[object]]) -> None:
        self._action, self._slices = action, 0

    async def __call__(self, _: Connection, step: str) -> None:
        self._slices += step == "flows.lock_flows"
        if self._slices == 2:
            self._slices += 1
            await self._action()


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 1)


@pytest.mark.usefixtures("one_by_one")
async def test_a_call_that_was_interrupted_is_finished_by_the_next(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await after(ff_engine, "a>b b>c", "a:F")

    async def crash() -> None:
        raise ConnectionError

    with stepped(Between(crash)), pytest.raises(TransportError):
        await ff_engine.replay_flow(flow.flow_id)
    assert await flow.states() == "a:w b:k c:k"
    await run_on(flow, "a")
    assert await flow.derived() == "failed"
    answer = await ff_engine.replay_flow(flow.flow_id)

    assert said(flow, answer) == (["b"], ["c"], [])
    assert await run_on(flow, "b", "c") == "a:ok b:ok c:ok"
    assert await flow.derived() == "completed"
    assert await broken_invariants(db) == {}


@pytest.mark.usefixtures("one_by_one")
async def test_a_cancel_between_two_slices_ends_the_replay(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await after(ff_engine, "a>b b>c", "a:F")

    between = Between(lambda: ff_engine.cancel_flow(flow.flow_id))
    with stepped(between), pytest.raises(FlowAlreadyTerminal):
        await ff_engine.replay_flow(flow.flow_id)

    assert (await flow.states(), await flow.derived()) == ("a:c b:k c:k", "cancelled")
    assert await broken_invariants(db) == {}


@pytest.mark.usefixtures("one_by_one")
async def test_one_that_fails_again_meanwhile_is_not_replayed_twice(ff_engine: Engine) -> None:
    flow = await after(ff_engine, "a>b b>c", "a:F")

    with stepped(Between(lambda: flow.fail("a"))):
        answer = await ff_engine.replay_flow(flow.flow_id)

    assert said(flow, answer) == (["a"], [], [])
    assert await flow.states() == "a:f b:k c:k"
    assert (await flow.row("a"))["replay_count"] == 1


@pytest.mark.usefixtures("one_by_one")
async def test_what_is_skipped_meanwhile_waits_again_too(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b b>c c>d")
    await flow.fail("a")
    await flow.carry()
    assert await flow.states() == "a:f b:k c:wc d:wc"

    with stepped(Between(flow.carry_all)):
        answer = await ff_engine.replay_flow(flow.flow_id)

    assert said(flow, answer) == (["a"], ["b", "c", "d"], [])
    assert await flow.states() == "a:w b:wc c:wc d:wc"
    assert await broken_invariants(db) == {}


# Refusals.


async def test_a_flow_that_is_not_there_or_an_actor_that_cannot_be(ff_engine: Engine) -> None:
    with pytest.raises(NotFound):
        await ff_engine.replay_flow(uuid4())
    with pytest.raises(ValidationError, match="actor"):
        await ff_engine.replay_flow(uuid4(), actor="")
