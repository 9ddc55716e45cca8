"""A dispatcher that dies at any statement, any number of times, changes nothing of the outcome.

A few graphs here, whose dispatcher raises; in `make prove` it is killed, in five hundred of 200.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.ids import ExecutionId
from tests import given
from tests.engine.flows.cascades import crashing_cascade, grown
from tests.engine.flows.graphs import submitted
from tests.engine.flows.model import final_letters

SEEDS = range(12)

UNFINISHED = """
SELECT (SELECT count(*) FROM ff.execution WHERE lifecycle_phase <> 'terminal')
     + (SELECT count(*) FROM ff.completion_event WHERE dispatched_at_ms IS NULL)
     + (SELECT count(*) FROM ff.pending_cancel_groups)
"""


@pytest.mark.parametrize("seed", SEEDS)
async def test_whenever_the_dispatcher_dies_the_outcome_is_the_same(
    db: Connection, ff_engine: Engine, seed: int
) -> None:
    chance = random.Random(seed)
    large = seed % 20 in (0, 11)

    run, faults = await crashing_cascade(
        db,
        ff_engine,
        chance,
        nodes=200 if large else chance.randint(20, 40),
        in_turns=seed % 2 == 1,
    )

    assert faults == []
    assert run.crashes


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cancelling", [True, False])
async def test_many_workers_that_all_dispatch_come_to_an_end(
    ff_engine: Engine, seed: int, cancelling: bool
) -> None:
    """Nobody takes turns; a worker gives up once everything has ended."""
    chance = random.Random(1000 + seed)
    dag = grown(chance, 120, cancelling=cancelling)
    flow = await submitted(ff_engine, dag.arrows, policies=dag.policies)
    names = {each: name for name, each in flow.ids.items()}

    async def work() -> None:
        while (await flow.fetch(UNFINISHED))[0][0]:
            tasks = await ff_engine.claim(given.WORKER, ttl=600, limit=chance.randint(1, 6))
            by_letter: dict[str, list[Lease]] = {"S": [], "F": [], "C": []}
            for task in tasks:
                by_letter[dag.outcomes[names[task.lease.execution_id]]].append(task.lease)
            await ff_engine.complete([Completion(lease) for lease in by_letter["S"]])
            lost = [*by_letter["F"], *by_letter["C"]]
            await ff_engine.fail(
                [Failure(lease=lease, reason="boom", category="permanent") for lease in lost]
            )
            await ff_engine.dispatch()
            await flow.tick()

    async with asyncio.timeout(30):
        await asyncio.gather(*(work() for _ in range(4)))

    states = await flow.fetch("SELECT execution_id, public_state FROM ff.execution")
    found = {
        names[ExecutionId(flow["m000"].partition_key, row["execution_id"])]: row["public_state"]
        for row in states
    }
    ended = {"completed", "failed", "skipped", "cancelled"}
    assert set(found.values()) <= ended
    if not cancelling:
        words = {"S": "completed", "F": "failed", "C": "failed", "K": "skipped"}
        assert found == {name: words[letter] for name, letter in final_letters(dag).items()}
