"""What a downstream is given of its upstreams' results."""

from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from tests import given
from tests.engine.controls import Another, waiting
from tests.engine.flows.graphs import Graph, empty, fan_in, submitted

OWN: dict[str, Any] = {"d": {"input_payload": b"own"}}


async def joined(engine: Engine, n: int, policy: JoinPolicy, refs: str) -> Graph:
    """`n` upstreams of d, which has a payload of its own; `refs` are the numbers that pass data."""
    passing = [f"u{number}>d" for number in refs]
    return await submitted(engine, fan_in(n), policies={"d": policy}, refs=passing, fields=OWN)


async def completed(flow: Graph, *numbers: int, together: bool = True) -> None:
    """These complete in this order, each with its number as result."""
    for number in numbers:
        await flow.complete(f"u{number}", result=str(number).encode())
        if not together:
            await flow.carry_all()
    await flow.carry_all()


together = pytest.mark.parametrize("together", [True, False])


async def test_the_worker_gets_it_as_its_input(db: Connection, ff_engine: Engine) -> None:
    flow = await joined(ff_engine, 1, AllOf(), "1")
    await completed(flow, 1)

    [task] = await claim(db, given.WORKER, ttl=30)

    assert task.input_payload == b"1"


@together
async def test_of_all_the_last_one_wins(ff_engine: Engine, together: bool) -> None:
    flow = await joined(ff_engine, 3, AllOf(), "123")

    await completed(flow, 2, 3, 1, together=together)

    assert await flow.payload("d") == b"1"


@together
async def test_of_all_only_edges_with_a_reference_pass(ff_engine: Engine, together: bool) -> None:
    flow = await joined(ff_engine, 3, AllOf(), "12")

    await completed(flow, 2, 1, 3, together=together)

    assert await flow.payload("d") == b"1"


@together
@pytest.mark.parametrize("policy", [AnyOf("let_run"), Quorum(1, "let_run")])
async def test_of_any_only_the_one_that_decides_passes(
    ff_engine: Engine, policy: JoinPolicy, together: bool
) -> None:
    flow = await joined(ff_engine, 3, policy, "123")

    await completed(flow, 2, 3, 1, together=together)

    assert await flow.payload("d") == b"2"


@together
async def test_of_a_quorum_only_the_one_that_completes_it_passes(
    ff_engine: Engine, together: bool
) -> None:
    flow = await joined(ff_engine, 4, Quorum(3, "let_run"), "1234")

    await completed(flow, 4, 1, 3, 2, together=together)

    assert await flow.payload("d") == b"3"


@together
async def test_one_that_decides_without_a_reference_passes_nothing(
    ff_engine: Engine, together: bool
) -> None:
    flow = await joined(ff_engine, 3, Quorum(2, "let_run"), "13")

    await completed(flow, 1, 2, 3, together=together)

    assert await flow.payload("d") == b"own"


@together
async def test_failures_in_between_do_not_count(ff_engine: Engine, together: bool) -> None:
    flow = await joined(ff_engine, 4, Quorum(2, "let_run"), "1234")
    await flow.complete("u1", result=b"1")
    await flow.fail("u2")
    if not together:
        await flow.carry_all()
    await completed(flow, 3, 4, together=together)

    assert await flow.payload("d") == b"3"


@together
async def test_a_void_result_leaves_what_there_was(ff_engine: Engine, together: bool) -> None:
    flow = await joined(ff_engine, 2, AllOf(), "12")
    await flow.complete("u1", result=b"1")
    if not together:
        await flow.carry_all()
    await flow.complete("u2", result=None)
    await flow.carry_all()

    assert await flow.payload("d") == b"1"


async def test_an_empty_result_is_a_result(ff_engine: Engine) -> None:
    flow = await joined(ff_engine, 1, AllOf(), "1")
    await flow.complete("u1", result=b"")
    await flow.carry_all()

    assert await flow.payload("d") == b""


async def test_an_empty_reference_is_none(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "u1")
    await flow.add("d", input_payload=b"own")
    await flow.link("u1>d", ref="")
    await completed(flow, 1)

    assert await flow.payload("d") == b"own"


@pytest.mark.parametrize("letter", list("FCEK"))
async def test_only_a_success_passes(ff_engine: Engine, letter: str) -> None:
    flow = await joined(ff_engine, 2, AnyOf("let_run"), "1")
    await flow.end("u1", letter)
    await completed(flow, 2)

    assert await flow.payload("d") == b"own"


async def test_a_downstream_that_runs_is_not_given_anything(ff_engine: Engine) -> None:
    flow = await empty(ff_engine, "u1")
    await flow.add("d", input_payload=b"own")
    await flow.claim("d")
    await flow.link("u1>d", ref="x")
    await completed(flow, 1)

    assert await flow.payload("d") == b"own"


@pytest.mark.parametrize("letter", list("SFC"))
async def test_a_downstream_that_has_ended_is_not_given_anything(
    ff_engine: Engine, letter: str
) -> None:
    flow = await empty(ff_engine, "u1")
    await flow.add("d", input_payload=b"own")
    await flow.claim("d")
    await flow.link("u1>d", ref="x")
    await flow.end("d", letter)
    await flow.complete("u1", result=b"1")
    await flow.carry_all()

    assert await flow.payload("d") == b"own"


async def test_one_result_goes_to_many(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>b a>c a>d", refs=["a>b", "a>d"])
    await flow.complete("a", result=b"R")
    await flow.carry_all()

    assert [await flow.payload(name) for name in "bcd"] == [b"R", b"", b"R"]


async def test_the_result_of_the_attempt_that_succeeded(ff_engine: Engine) -> None:
    flow = await submitted(
        ff_engine, "a>d", refs=["a>d"], fields={"a": {"policy": given.retrying(1)}}
    )
    [lease] = await flow.claim("a")
    await ff_engine.release([lease])
    flow.leases.clear()
    await flow.complete("a", result=b"second")
    await flow.carry_all()

    assert await flow.payload("d") == b"second"


# A group that expects more edges than it has.


async def expecting(engine: Engine, policy: JoinPolicy, n: int) -> Graph:
    flow = await empty(engine, *(f"u{number}" for number in range(1, n + 1)))
    await flow.add("d", input_payload=b"own")
    await engine.set_edge_group_policy(flow.flow_id, flow["d"], policy, expected_n=n)
    return flow


@pytest.mark.parametrize("last", ["runs", "has ended"])
async def test_once_all_are_there_the_earliest_success_passes(ff_engine: Engine, last: str) -> None:
    flow = await expecting(ff_engine, Quorum(2, "let_run"), 3)
    await flow.link("u1>d", ref="x")
    await flow.link("u2>d")
    await completed(flow, 1, 2, together=False)
    assert await flow.group("d") == "2/0/0/0 pending"
    if last == "has ended":
        await completed(flow, 3)

    await flow.link("u3>d")

    assert await flow.state("d") == "waiting"
    assert await flow.payload("d") == b"1"


@pytest.mark.parametrize("policy", [AnyOf("let_run"), Quorum(2, "let_run")])
async def test_if_the_earliest_success_has_no_reference_nothing_passes(
    ff_engine: Engine, policy: JoinPolicy
) -> None:
    flow = await expecting(ff_engine, policy, 3)
    await flow.link("u1>d")
    await flow.link("u2>d", ref="x")
    await completed(flow, 1, 2, together=False)

    await flow.link("u3>d")

    assert await flow.state("d") == "waiting"
    assert await flow.payload("d") == b"own"


async def test_who_is_cancelled_meanwhile_is_fed_nothing(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    flow = await joined(ff_engine, 1, AllOf(), "1")
    await flow.complete("u1", result=b"1")
    operator = await another()
    async with operator.transaction():
        await cancel_execution(operator, flow["d"], reason="not wanted")
        carrying = await waiting(db, flow.carry())

    assert await carrying == 1
    assert (await flow.state("d"), await flow.payload("d")) == ("cancelled", b"own")
