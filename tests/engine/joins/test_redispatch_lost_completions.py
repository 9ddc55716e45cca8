"""An end that was marked as carried, and never was, is carried after all."""

import logging
import re
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection, positional
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.redispatch_lost_completions import (
    REDISPATCH_LOST_COMPLETIONS,
    redispatch_lost_completions,
)
from flowfabric.joins import AnyOf
from flowfabric.reconcile.sweeps import SWEEPS
from tests import given
from tests.engine.flows.graphs import end_all, fan_in, submitted
from tests.engine.joins import parents

MARK = "UPDATE ff.completion_event SET dispatched_at_ms = 1 WHERE dispatched_at_ms IS NULL"
FORGET_FLOW = "UPDATE ff.completion_event SET flow_id = NULL"


async def test_who_waits_for_an_end_that_was_lost_is_promoted_after_all(
    db: Connection, ff_engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    flow = await submitted(ff_engine, "a>b a>c b>d c>d")
    await flow.complete("a")
    await db.execute(MARK)
    assert await flow.carry_all() == 0

    with caplog.at_level(logging.WARNING, "flowfabric.flows"):
        assert await redispatch_lost_completions(db, 50) == 1

    assert "invariant_violation" in caplog.text
    assert str(flow["a"]) in caplog.text
    assert await flow.carry_all() == 1
    assert await flow.states() == "a:ok b:w c:w d:wc"
    assert await redispatch_lost_completions(db, 50) == 0


async def test_a_failure_that_was_lost_skips_after_all(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d b>d")
    await flow.fail("a")
    await db.execute(MARK)

    assert await redispatch_lost_completions(db, 50) == 1

    await flow.carry_all()
    assert await flow.states() == "a:f b:w d:k"


async def test_a_parent_hears_of_a_child_whose_end_was_lost(
    db: Connection, ff_engine: Engine
) -> None:
    family = await parents.parent(ff_engine, db)
    await family.spawn("ab", policy=AnyOf())
    await family.put_down()
    await family.complete("b")
    await db.execute(MARK)

    assert await redispatch_lost_completions(db, 50) == 1

    await family.settle()
    assert await family.read() == ("satisfied", ["b"], [])
    assert await family.states() == "a:c b:ok p:w"


async def test_an_end_from_before_it_was_a_member_is_carried_too(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.complete("a")
    await db.execute(FORGET_FLOW)
    assert await flow.carry_all() == 0

    assert await redispatch_lost_completions(db, 50) == 1

    await flow.carry_all()
    assert await flow.states() == "a:ok d:w"


async def test_an_edge_is_resolved_by_the_last_end_alone(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.fail("a")
    await db.execute(MARK)
    await flow.replay("a")
    await flow.complete("a")
    await db.execute(MARK)

    assert await redispatch_lost_completions(db, 50) == 1

    await flow.carry_all()
    assert await flow.states() == "a:ok d:w"


# What is as it should be stays so.


async def nothing_lost(db: Connection) -> None:
    before = await given.everything(db)
    assert await redispatch_lost_completions(db, 50) == 0
    assert await given.everything(db) == before


async def test_an_end_that_is_not_dispatched_yet_is_left_to_the_dispatch(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>d b>d")
    await flow.complete("a")
    await nothing_lost(db)
    await flow.carry_all()
    await nothing_lost(db)


async def test_an_end_that_a_replayed_member_does_not_use_any_more_is_not_carried(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.fail("a")
    await flow.carry_all()
    assert await flow.replay("d") == "waiting_children"

    await nothing_lost(db)


async def test_an_upstream_that_runs_again_is_waited_for(db: Connection, ff_engine: Engine) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.fail("a")
    await flow.carry_all()
    await flow.replay("d")
    await flow.replay("a")

    await nothing_lost(db)


# How much at once, and at what cost.


async def test_at_most_so_many_who_wait_are_looked_after_at_once(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, " ".join(f"a{n}>d{n}" for n in range(5)))
    await flow.complete(*(f"a{n}" for n in range(5)))
    await db.execute(MARK)

    assert [await redispatch_lost_completions(db, 2) for _ in range(4)] == [2, 2, 1, 0]

    await flow.carry_all()
    assert (await flow.states()).count(":w") == 5


async def test_of_a_wide_join_twenty_edges_are_looked_at_and_then_the_rest(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, fan_in(30))
    await flow.complete(*(f"u{n}" for n in range(1, 31)))
    await db.execute(MARK)

    assert await redispatch_lost_completions(db, 50) == 20
    await flow.carry_all()
    assert await redispatch_lost_completions(db, 50) == 10
    await flow.carry_all()

    assert await flow.state("d") == "waiting"


async def cost(db: Connection) -> tuple[int, str]:
    """How many pages one look reads, and by which plan."""
    text, names = positional(REDISPATCH_LOST_COMPLETIONS)
    values = {"limit": 50, "looked_at": 1000, "edges_each": 20, "start": 0}
    explain = "EXPLAIN (ANALYZE, BUFFERS) " + text
    lines = [row[0] for row in await db.fetch(explain, *[values[name] for name in names])]
    first = next(line for line in lines if "Buffers" in line)
    return sum(map(int, re.findall(r"(?:hit|read)=(\d+)", first))), "\n".join(lines)


@pytest.mark.session("reads the plan of a session with our settings")
async def test_it_costs_the_same_however_many_executions_have_ended(
    db: Connection, ff_engine: Engine
) -> None:
    await submitted(ff_engine, fan_in(3))

    async def ended(many: int) -> tuple[int, str]:
        news = [given.new() for _ in range(many)]
        await ff_engine.create_execution(news)
        await end_all(db, [new.execution_id for new in news], "S")
        await db.execute("VACUUM ANALYZE")
        return await cost(db)

    before, plan = await ended(500)
    assert "Seq Scan" not in plan
    assert before <= 40, plan
    after, plan = await ended(4000)
    assert "Seq Scan" not in plan
    assert after <= before + 10, plan


async def test_one_round_of_the_sweeps_finds_and_carries_it(
    db: Connection, ff_engine: Engine, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    flow = await submitted(ff_engine, "a>d")
    await flow.complete("a")
    await db.execute(MARK)
    [sweep] = [each for each in SWEEPS if each.step is redispatch_lost_completions]
    assert (sweep.every, sweep.batch) == (15.0, 50)

    await ff_sweep()

    assert await flow.states() == "a:ok d:w"
