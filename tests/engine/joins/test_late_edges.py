"""Edges that come after a group was decided, or before it has all that it expects."""

import pytest

from flowfabric.engine.engine import Engine
from flowfabric.errors import ValidationError
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.testing import Clock
from tests.engine.flows.graphs import Graph, empty


async def decided(engine: Engine, policy: JoinPolicy, *more: str) -> Graph:
    """A group of one upstream that succeeded; its downstream waits for a worker."""
    flow = await empty(engine, "a", *more, "d")
    await engine.set_edge_group_policy(flow.flow_id, flow["d"], policy)
    await flow.link("a>d")
    await flow.complete("a")
    await flow.carry_all()
    assert await flow.group("d") == "1/0/0/0 satisfied"
    return flow


# Onto a group that was decided.


async def test_all_of_takes_a_late_edge_while_nobody_has_begun(
    ff_engine: Engine, clock: Clock
) -> None:
    flow = await decided(ff_engine, AllOf(), "b")
    await clock.advance(5)

    assert await flow.link("b>d") == 1

    assert await flow.group("d") == "1/0/0/1 pending"
    assert (await flow.group_row("d"))["fired_at_ms"] is None
    assert await flow.states() == "a:ok b:w d:wc"
    await flow.complete("b")
    await flow.carry_all()
    assert await flow.states() == "a:ok b:ok d:w"
    assert await flow.group("d") == "2/0/0/0 satisfied"
    assert (await flow.group_row("d"))["fired_at_ms"] == await clock.now_ms()


async def test_a_late_edge_may_make_it_impossible(ff_engine: Engine) -> None:
    flow = await decided(ff_engine, AllOf(), "b")
    await flow.link("b>d")
    await flow.fail("b")

    await flow.carry_all()

    assert await flow.states() == "a:ok b:f d:k"
    assert await flow.group("d") == "1/1/0/0 impossible"


@pytest.mark.parametrize(
    ("letter", "counts", "state"),
    [("S", "2/0/0/0 satisfied", "w"), ("F", "1/1/0/0 impossible", "k")],
)
async def test_a_late_edge_from_one_that_has_ended_is_decided_at_once(
    ff_engine: Engine, letter: str, counts: str, state: str
) -> None:
    flow = await decided(ff_engine, AllOf(), "b")
    await flow.end("b", letter)
    await flow.carry_all()

    assert await flow.link("b>d") == 0

    assert await flow.group("d") == counts
    assert (await flow.states()).endswith(f"d:{state}")


async def test_a_late_edge_keeps_the_time_of_a_delayed_one(ff_engine: Engine, clock: Clock) -> None:
    flow = await empty(ff_engine, "a", "b")
    await flow.add("d", delay=60)
    await flow.link("a>d")
    await flow.complete("a")
    await flow.carry_all()
    assert await flow.state("d") == "delayed"

    await flow.link("b>d")
    assert await flow.state("d") == "waiting_children"
    await flow.complete("b")
    await flow.carry_all()

    row = await flow.row("d")
    assert row["public_state"] == "delayed"
    assert row["delay_until_ms"] == row["created_at_ms"] + 60_000


@pytest.mark.parametrize("policy", [AnyOf(), AnyOf("let_run"), Quorum(1), Quorum(1, "let_run")])
@pytest.mark.parametrize("letter", ["S", "F"])
async def test_any_of_and_quorum_only_count_it(
    ff_engine: Engine, policy: JoinPolicy, letter: str
) -> None:
    flow = await decided(ff_engine, policy, "b")
    before = await flow.row("d")
    fired_at = (await flow.group_row("d"))["fired_at_ms"]

    assert await flow.link("b>d") == 1

    assert await flow.group("d") == "1/0/0/1 satisfied"
    assert await flow.row("d") == before
    await flow.end("b", letter)
    await flow.carry_all()
    assert (
        await flow.group("d") == f"{2 if letter == 'S' else 1}/{int(letter == 'F')}/0/0 satisfied"
    )
    assert await flow.row("d") == before
    assert (await flow.group_row("d"))["fired_at_ms"] == fired_at
    assert await flow.count("pending_cancel_groups") == 0


@pytest.mark.parametrize("policy", [AllOf(), AnyOf()])
async def test_one_that_runs_is_not_disturbed(ff_engine: Engine, policy: JoinPolicy) -> None:
    flow = await decided(ff_engine, policy, "b")
    await flow.claim("d")
    before = await flow.row("d")

    assert await flow.link("b>d") == 1

    assert await flow.row("d") == before
    assert await flow.group("d") == "1/0/0/1 satisfied"
    await flow.fail("b")
    await flow.carry_all()
    assert await flow.row("d") == before
    await flow.complete("d")


async def test_one_that_has_ended_takes_none(ff_engine: Engine) -> None:
    flow = await decided(ff_engine, AllOf(), "b")
    await flow.complete("d")
    await flow.stage("b>d")

    with pytest.raises(ValidationError, match="downstream_terminal"):
        await flow.apply("b>d")


# Before there are enough edges.


async def test_edges_that_might_still_come_do_not_save_a_quorum(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], Quorum(2, "let_run"))
    await flow.link("a>d", "b>d")
    await flow.fail("a")

    await flow.carry_all()

    assert await flow.group("d") == "0/1/0/1 impossible"


async def test_fewer_edges_than_the_quorum_leave_it_open(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "c", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], Quorum(3, "let_run"))
    await flow.link("a>d", "b>d")
    await flow.complete("a")
    await flow.carry_all()
    assert await flow.group("d") == "1/0/0/1 pending"

    await flow.link("c>d")
    await flow.complete("b", "c")
    await flow.carry_all()

    assert await flow.group("d") == "3/0/0/0 satisfied"


async def test_once_all_have_ended_a_quorum_that_is_too_large_is_impossible(
    ff_engine: Engine,
) -> None:
    flow = await empty(ff_engine, "a", "b", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], Quorum(3))
    await flow.link("a>d", "b>d")
    await flow.complete("a", "b")

    await flow.carry_all()

    assert await flow.group("d") == "2/0/0/0 impossible"
    assert await flow.state("d") == "skipped"


@pytest.mark.parametrize("policy", [AllOf(), AnyOf("let_run"), Quorum(1, "let_run")])
@pytest.mark.parametrize("letter", ["S", "F"])
async def test_a_group_that_expects_more_is_not_decided(
    ff_engine: Engine, policy: JoinPolicy, letter: str
) -> None:
    flow = await empty(ff_engine, "a", "b", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], policy, expected_n=2)
    await flow.link("a>d")
    await flow.end("a", letter)

    await flow.carry_all()

    assert (await flow.group("d")).endswith("0/0 pending")
    assert await flow.state("d") == "waiting_children"


@pytest.mark.parametrize(
    ("policy", "letter", "state"),
    [
        (AllOf(), "S", "waiting_children"),
        (AllOf(), "F", "skipped"),
        (AnyOf("let_run"), "S", "waiting"),
        (AnyOf("let_run"), "F", "waiting_children"),
        (Quorum(2, "let_run"), "F", "skipped"),
        (Quorum(2, "let_run"), "S", "waiting_children"),
    ],
)
async def test_the_last_edge_that_was_expected_decides(
    ff_engine: Engine, policy: JoinPolicy, letter: str, state: str
) -> None:
    flow = await empty(ff_engine, "a", "b", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], policy, expected_n=2)
    await flow.link("a>d")
    await flow.end("a", letter)
    await flow.carry_all()

    assert await flow.link("b>d") == 1

    assert await flow.state("d") == state


async def test_the_last_edge_lists_who_is_not_needed_any_more(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "a", "b", "c", "d")
    await ff_engine.set_edge_group_policy(flow.flow_id, flow["d"], AnyOf(), expected_n=3)
    await flow.link("a>d", "b>d")
    await flow.complete("a")
    await flow.carry_all()
    assert await flow.count("pending_cancel_groups") == 0

    await flow.link("c>d")

    assert await flow.state("d") == "waiting"
    assert await flow.tick() == 1
    assert await flow.states() == "a:ok b:c c:c d:w"
    await flow.carry_all()
