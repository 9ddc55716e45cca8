"""One dispatch resolves at most so many edges; a completion with more of them takes several."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins import dispatch_completions
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.joins import AnyOf
from tests.engine.controls import Another
from tests.engine.flows.graphs import Graph, submitted
from tests.engine.joins.invariants import broken_invariants

CAP = 5


@pytest.fixture(autouse=True)
def cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_completions, "MAX_EDGES", CAP)


def fan_out(n: int, source: str = "a") -> str:
    return " ".join(f"{source}>{source}{number:02}" for number in range(n))


async def resolved(flow: Graph) -> int:
    [row] = await flow.fetch("SELECT count(*) FROM ff.edge WHERE resolution <> 'unresolved'")
    return row[0]


async def marked(flow: Graph) -> int:
    [row] = await flow.fetch(
        "SELECT count(*) FROM ff.completion_event WHERE dispatched_at_ms IS NOT NULL"
    )
    return row[0]


@pytest.mark.parametrize("letter", ["S", "F"])
async def test_a_completion_with_more_edges_is_marked_with_its_last_slice(
    ff_engine: Engine, db: Connection, letter: str
) -> None:
    flow = await submitted(ff_engine, fan_out(12))
    await flow.end("a", letter)

    steps = []
    for _ in range(3):
        worked_on = await flow.carry(limit=1)
        steps.append((worked_on, await resolved(flow), await marked(flow)))
        assert await broken_invariants(db) == {}

    assert steps == [(1, 5, 0), (1, 10, 0), (1, 12, 1)]
    await flow.carry_all()
    states = {state for name, state in (each.split(":") for each in (await flow.states()).split())}
    assert states == ({"ok", "w"} if letter == "S" else {"f", "k"})


async def test_completions_are_taken_while_their_edges_are_few_enough(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, f"{fan_out(3)} {fan_out(2, 'b')} {fan_out(2, 'c')} x")
    await flow.complete("a", "b", "c", "x")

    assert await flow.carry() == 2
    assert (await resolved(flow), await marked(flow)) == (5, 2)
    assert await flow.carry() == 2
    assert (await resolved(flow), await marked(flow)) == (7, 4)


async def test_a_large_one_waits_until_it_is_the_first(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, f"x {fan_out(1, 'b')} {fan_out(7)}")
    await flow.complete("x", "b", "a")

    assert await flow.carry() == 2
    assert (await resolved(flow), await marked(flow)) == (1, 2)
    assert [await flow.carry() for _ in range(3)] == [1, 1, 0]
    assert (await resolved(flow), await marked(flow)) == (8, 3)


async def test_a_dispatch_goes_on_until_the_last_slice(ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, fan_out(12))
    await flow.complete("a")

    assert await ff_engine.dispatch() == 1

    assert (await resolved(flow), await marked(flow)) == (12, 1)


async def test_a_slice_that_is_rolled_back_is_resolved_again(
    ff_engine: Engine, db: Connection
) -> None:
    flow = await submitted(ff_engine, fan_out(12), policies={"a00": AnyOf()})
    await flow.complete("a")
    await flow.carry(limit=1)
    dying = db.transaction()
    await dying.start()
    await dispatch_completions.dispatch_completions(db)
    await dying.rollback()

    assert await resolved(flow) == 5
    assert await ff_engine.dispatch() == 1
    assert (await resolved(flow), await marked(flow)) == (12, 1)
    assert await broken_invariants(db) == {}


async def test_a_locked_waiter_leaves_its_edge_open_and_the_completion_unmarked(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    flow = await submitted(ff_engine, "a>b a>c x>y")
    await flow.complete("a", "x")
    holder = await another()
    async with holder.transaction():
        await lock_executions(holder, [flow["b"]])

        assert await ff_engine.dispatch() == 1

        assert await flow.states() == "a:ok b:wc c:w x:ok y:w"
        assert (await resolved(flow), await marked(flow)) == (2, 1)
        assert await broken_invariants(db) == {}
    assert await ff_engine.dispatch() == 1

    assert await flow.states() == "a:ok b:w c:w x:ok y:w"
    assert (await flow.group("b"), await marked(flow)) == ("1/0/0/0 satisfied", 2)
