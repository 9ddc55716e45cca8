"""The engine: every operation by its name, each in a transaction of its own."""

import asyncio

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure, TerminalFailed
from flowfabric.engine.lifecycle.release import Released
from flowfabric.ids import PartitionKey
from flowfabric.states import PublicState
from tests import given


async def test_a_life_through_the_engine_is_visible_to_everybody_at_once(
    ff_engine: Engine, db: Connection
) -> None:
    new = given.new(tags={"a.b": "c"})
    [created] = await ff_engine.create_execution([new])
    assert isinstance(created, Created)
    assert await given.public_state(db, new.execution_id) is PublicState.WAITING
    [task] = await ff_engine.claim(given.WORKER, ttl=30)
    assert await ff_engine.renew([task.lease], ttl=30) == [None]
    assert await ff_engine.progress(task.lease, percent=50) is None
    assert await ff_engine.release([task.lease]) == [Released(execution_id=new.execution_id)]
    [task] = await ff_engine.claim(given.WORKER, ttl=30)

    [done] = await ff_engine.complete([Completion(task.lease, b"42")])

    assert done == Completed(execution_id=new.execution_id)
    assert await given.public_state(db, new.execution_id) is PublicState.COMPLETED
    assert await ff_engine.get_execution_result(new.execution_id) == b"42"
    assert await ff_engine.read_execution_state(new.execution_id) is PublicState.COMPLETED
    assert len(await ff_engine.list_attempts(new.execution_id)) == 1
    assert await ff_engine.describe_execution(new.execution_id) is not None
    assert await ff_engine.read_execution_info(new.execution_id) is not None
    assert list(await ff_engine.read_outcomes([new.execution_id])) == [new.execution_id]
    partition = PartitionKey("fp", new.execution_id.partition_key)
    assert (await ff_engine.list_executions(partition)).executions == [new.execution_id]
    assert (await ff_engine.list_lanes()).lanes == ["default"]


async def test_the_other_ways_to_let_go_pass_through_too(ff_engine: Engine) -> None:
    await ff_engine.create_execution([given.new(), given.new()])
    one, two = [task.lease for task in await ff_engine.claim(given.WORKER, ttl=30, limit=2)]

    assert await ff_engine.delay([DelayRequest(lease=one, delay=60)]) == [
        Delayed(execution_id=one.execution_id)
    ]
    assert await ff_engine.fail([Failure(lease=two, reason="boom")]) == [
        TerminalFailed(execution_id=two.execution_id, max_attempts=1)
    ]


async def test_concurrent_callers_of_one_key_create_one_execution(
    ff_engine: Engine, db: Connection
) -> None:
    answers = await asyncio.gather(
        *[ff_engine.create_execution([given.new(idempotency_key="once")]) for _ in range(16)]
    )

    kinds = [type(answer) for [answer] in answers]
    assert (kinds.count(Created), kinds.count(Duplicate)) == (1, 15)
    assert len({answer.execution_id for [answer] in answers}) == 1
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 1
