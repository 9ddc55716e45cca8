"""After a cancel has returned, the members that were to end have ended, and none succeeds."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.cancel_flow_header import FlowAlreadyCancelled, FlowCancelAccepted
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.delay import DelayRequest
from flowfabric.engine.lifecycle.end_parked_members import end_parked_members
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import ExecutionNotActive, FlowAlreadyTerminal, NotFound, OperationTimeout
from flowfabric.joins import AnyOf
from flowfabric.testing import Clock
from tests import given
from tests.engine.flows.graphs import fan_in, minted, submitted
from tests.engine.flows.test_cancel_flow_header import ALL, ENDED, TARGETS, motley


@pytest.mark.parametrize("policy", TARGETS)
async def test_whoever_was_to_end_has_ended(db: Connection, ff_engine: Engine, policy: str) -> None:
    flow = await motley(ff_engine, db)
    ended = {name: await flow.row(name) for name in ENDED}
    told = {name: await flow.told(name) for name in ALL}

    answer = await ff_engine.cancel_flow(flow.flow_id, reason="enough", policy=policy)

    assert isinstance(answer, FlowCancelAccepted)
    assert flow.named(answer.member_execution_ids) == list(TARGETS[policy])
    for name in ALL:
        row = await flow.row(name)
        if name in ended:
            assert row == ended[name]
            assert await flow.told(name) == told[name]
        elif name in TARGETS[policy]:
            assert row["terminal_outcome"] == "cancelled", name
            assert (row["cancellation_reason"], row["cancelled_by"]) == ("enough", "cancel_flow")
            assert await flow.told(name) == ["cancelled"]
        else:
            assert row["lifecycle_phase"] != "terminal"
    assert await flow.count("cancel_backlog") == await flow.count("cancel_backlog_member") == 0
    left = await flow.carry_all()
    assert left == (len(TARGETS[policy]) if policy == "cancel_all" else 0)


async def test_nobodys_success_is_recorded_any_more(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a b c>d")
    leases = await flow.claim("a", "b", "c")

    await ff_engine.cancel_flow(flow.flow_id)

    for answer in await ff_engine.complete([Completion(lease, b"late") for lease in leases]):
        assert isinstance(answer, ExecutionNotActive)
        assert answer.terminal_outcome == "cancelled"
    assert await flow.states() == "a:c b:c c:c d:c"
    for name in "abc":
        assert await flow.told(name) == ["cancelled"]
        assert (await given.lease_events(db, flow[name]))[-1] == ("revoked", "cancelled")
        assert (await given.attempts(db, flow[name]))[-1]["outcome"] == "cancelled"
    assert await flow.derived() == "cancelled"


async def test_nothing_is_added_replayed_or_linked_any_more(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b c")
    await flow.stage("c>b")
    await ff_engine.cancel_flow(flow.flow_id)

    for call in (
        ff_engine.add_execution_to_flow(flow.flow_id, minted(flow.flow_id)),
        flow.stage("c>a"),
        flow.apply("c>b"),
        ff_engine.set_edge_group_policy(flow.flow_id, flow["c"], AnyOf()),
        flow.replay("a"),
    ):
        with pytest.raises(FlowAlreadyTerminal):
            await call


async def test_a_member_that_is_added_again_is_no_way_in(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a")
    await ff_engine.cancel_flow(flow.flow_id)

    with pytest.raises(FlowAlreadyTerminal):
        await ff_engine.add_execution_to_flow(flow.flow_id, flow["a"])


async def test_without_a_reason_members_say_flow_cancelled(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a")

    await ff_engine.cancel_flow(flow.flow_id)

    assert (await flow.row("a"))["cancellation_reason"] == "flow_cancelled"


async def test_an_unknown_flow(ff_engine: Engine) -> None:
    with pytest.raises(NotFound, match="flow"):
        await ff_engine.cancel_flow(uuid4())


async def test_cancelling_the_flow_only_lets_the_graph_drain(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b b>c x>y")
    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_flow_only")
    assert await flow.derived() == "blocked"

    await flow.complete("a")
    await flow.fail("x")
    await ff_engine.dispatch()
    assert await flow.states() == "a:ok b:w c:wc x:f y:k"
    await flow.complete("b")
    await ff_engine.dispatch()
    await flow.complete("c")
    await ff_engine.dispatch()

    assert await flow.states() == "a:ok b:ok c:ok x:f y:k"
    assert await flow.derived() == "cancelled"


async def test_a_member_of_such_a_flow_is_still_retried(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a", fields={"a": {"policy": given.retrying(1)}})
    [lease] = await flow.claim("a")
    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_flow_only")

    await ff_engine.fail([Failure(lease=lease, reason="boom", retry_after=0)])

    assert await flow.states() == "a:w"


# Members that run while the pending ones are cancelled.

GIVE_UP: dict[str, Callable[[Engine, Lease], Awaitable[object]]] = {
    "fail": lambda engine, lease: engine.fail([Failure(lease=lease, reason="boom")]),
    "fail at once": lambda engine, lease: engine.fail(
        [Failure(lease=lease, reason="boom", retry_after=0)]
    ),
    "release": lambda engine, lease: engine.release([lease]),
    "delay": lambda engine, lease: engine.delay([DelayRequest(lease=lease, delay=5)]),
    "revoke": lambda engine, lease: engine.revoke_lease(lease.execution_id, reason="test"),
}


@pytest.mark.parametrize("way", [*GIVE_UP, "lapse"])
async def test_one_that_would_run_again_is_cancelled_instead(
    db: Connection, ff_engine: Engine, clock: Clock, way: str
) -> None:
    flow = await submitted(ff_engine, "a>b x", fields={"a": {"policy": given.retrying(3)}})
    [lease] = await flow.claim("a")
    await ff_engine.cancel_flow(flow.flow_id, reason="enough", policy="cancel_pending")
    assert await flow.states() == "a:a b:c x:c"

    if way == "lapse":
        await clock.advance(31)
        assert await expire_leases(db, limit=10) == 1
    else:
        await GIVE_UP[way](ff_engine, lease)
    await clock.advance(600)
    row = await flow.row("a")
    assert (row["eligibility_state"], row["blocking_reason"]) == (
        "blocked_by_operator",
        "paused_by_flow_cancel",
    )
    assert await ff_engine.claim(given.WORKER, ttl=5, limit=10) == []

    assert [await end_parked_members(db, limit=10) for _ in range(2)] == [1, 0]

    row = await flow.row("a")
    assert (row["terminal_outcome"], row["cancellation_reason"], row["cancelled_by"]) == (
        "cancelled",
        "enough",
        "cancel_flow",
    )
    assert await flow.told("a") == ["cancelled"]
    await flow.carry_all()
    assert await flow.derived() == "cancelled"


async def test_one_that_completes_has_completed(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b b>c")
    [lease] = await flow.claim("a")
    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_pending")

    [answer] = await ff_engine.complete([Completion(lease, b"done")])
    await ff_engine.dispatch()

    assert isinstance(answer, Completed)
    assert await flow.states() == "a:ok b:c c:c"
    assert await flow.derived() == "cancelled"


async def test_one_that_fails_for_good_has_failed(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")
    await flow.claim("a")
    await ff_engine.cancel_flow(flow.flow_id, policy="cancel_pending")

    await flow.fail("a")
    await ff_engine.dispatch()

    assert await flow.states() == "a:f b:c"


async def test_what_is_owed_is_not_ended_twice_as_parked(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a b")
    await ff_engine.cancel_flow_header(flow.flow_id)

    assert await end_parked_members(db, limit=10) == 0

    await ff_engine.cancel_flow(flow.flow_id)
    assert await flow.told("a") == ["cancelled"]


# Beside races.


async def test_a_sibling_that_was_listed_ends_once(ff_engine: Engine) -> None:
    flow = await submitted(
        ff_engine, f"{fan_in(3)} u2>e x>e", policies={"d": AnyOf(), "e": AnyOf()}
    )
    await flow.complete("u1")
    await flow.carry()
    await flow.complete("x")
    await flow.carry()
    assert await flow.count("pending_cancel_groups") == 2

    await ff_engine.cancel_flow(flow.flow_id, reason="enough")

    assert await flow.states() == "d:c e:c u1:ok u2:c u3:c x:ok"
    await flow.tick()
    await flow.carry_all()
    assert await flow.count("pending_cancel_groups") == 0
    for name in ("u2", "u3"):
        assert await flow.told(name) == ["cancelled"]
        assert (await flow.row(name))["cancellation_reason"] == "enough"


# How long it waits.


async def test_who_does_not_wait_leaves_it_to_the_reconciler(
    ff_engine: Engine, clock: Clock, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    flow = await submitted(ff_engine, "a>b c")
    await flow.claim("c")

    answer = await ff_engine.cancel_flow(flow.flow_id, wait=None)

    assert isinstance(answer, FlowCancelAccepted)
    assert await flow.states() == "a:w b:w c:a"
    await clock.advance(29)
    await ff_sweep()
    assert await flow.states() == "a:w b:w c:a"
    await clock.advance(1)
    for _ in range(2):
        await ff_sweep()
    assert await flow.states() == "a:c b:c c:c"
    assert await flow.count("cancel_backlog") == 0


async def test_when_the_time_is_up_the_flow_stays_cancelled(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")

    with pytest.raises(OperationTimeout) as timeout:
        await ff_engine.cancel_flow(flow.flow_id, policy="cancel_pending", wait=0)

    assert (timeout.value.operation, timeout.value.seconds) == ("cancel_flow", 0)
    assert (timeout.value.code, timeout.value.http_status) == ("timeout", 504)
    assert (await flow.flow())["public_flow_state"] == "cancelled"
    assert await flow.count("cancel_backlog_member") == 2


async def test_whoever_cancels_again_finishes_what_was_left(ff_engine: Engine) -> None:
    """The first one died between the header and the members."""
    flow = await submitted(ff_engine, "a>b c")
    await flow.claim("c")
    await ff_engine.cancel_flow_header(flow.flow_id, reason="first")

    answer = await ff_engine.cancel_flow(flow.flow_id, reason="second")

    assert isinstance(answer, FlowAlreadyCancelled)
    assert answer.member_execution_ids == sorted(flow.ids.values())
    assert await flow.states() == "a:c b:c c:c"
    assert (await flow.row("a"))["cancellation_reason"] == "first"
    assert await flow.count("cancel_backlog") == 0


async def test_an_end_that_comes_before_its_cancel_stays(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b")
    await flow.claim("a")
    await ff_engine.cancel_flow_header(flow.flow_id)
    await flow.complete("a", result=b"just in time")

    await ff_engine.cancel_flow(flow.flow_id)

    assert await flow.states() == "a:ok b:c"
    assert await flow.told("a") == ["success"]
    assert await flow.count("cancel_backlog") == 0


@pytest.mark.parametrize("letter", ["S", "F"])
async def test_whoever_is_owed_a_cancel_is_neither_promoted_nor_skipped(
    ff_engine: Engine, letter: str
) -> None:
    flow = await submitted(ff_engine, "a>b b>c")
    await flow.claim("a")
    await ff_engine.cancel_flow_header(flow.flow_id)
    before = await flow.row("b")
    await flow.end("a", letter)

    await flow.carry_all()

    assert await flow.row("b") == before
    assert (await flow.group("b")).split()[1] == ("satisfied" if letter == "S" else "impossible")
    await ff_engine.cancel_flow(flow.flow_id)
    assert (await flow.states()).endswith("b:c c:c")
