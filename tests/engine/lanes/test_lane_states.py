"""What a lane's state means for those who claim from it and submit to it."""

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.flows.submit_flow import submit_flow
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lanes.count_by_lane import count_by_lane
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, create_execution
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.replay_execution import (
    Replayed,
    replay_execution,
    replay_executions,
)
from flowfabric.errors import LaneNotAccepting
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.policy import ExecutionPolicy
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another, execution

each_resting = pytest.mark.parametrize("state", ["paused", "disabled"])
each_closed = pytest.mark.parametrize("state", ["draining", "disabled"])
BOTH = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("default", "mail"))


@each_resting
async def test_nothing_is_claimed_from_it(db: Connection, state: str) -> None:
    await given.created(db)
    await set_lane_state(db, "default", state)
    before = await given.everything(db)

    assert await claim(db, given.WORKER, ttl=30, limit=10) == []

    assert await given.everything(db) == before


@each_resting
async def test_it_hides_nothing_of_the_other_lanes_of_a_worker(db: Connection, state: str) -> None:
    await given.created(db, priority=9)
    await given.created(db, priority=9, execution_kind="other")
    mail = await given.created(db, lane_id="mail")
    await set_lane_state(db, "default", state)

    [task] = await claim(db, BOTH, ttl=30, limit=10)

    assert task.lease.execution_id == mail


@each_resting
async def test_a_worker_of_resting_lanes_only_gets_nothing(db: Connection, state: str) -> None:
    await given.created(db)
    await given.created(db, lane_id="mail")
    await set_lane_state(db, "default", state)
    await set_lane_state(db, "mail", state)

    assert await claim(db, BOTH, ttl=30, limit=10) == []


@each_resting
async def test_made_active_again_it_is_claimed_from(db: Connection, state: str) -> None:
    execution_id = await given.created(db)
    await set_lane_state(db, "default", state)
    await set_lane_state(db, "default", "active")

    [task] = await claim(db, given.WORKER, ttl=30)

    assert task.lease.execution_id == execution_id


async def test_a_paused_lane_takes_new_work(db: Connection) -> None:
    await given.created(db)
    await set_lane_state(db, "default", "paused")

    [answer] = await create_execution(db, [given.new()])

    assert isinstance(answer, Created)


@each_closed
async def test_a_closed_lane_takes_no_new_work_and_nothing_is_written(
    db: Connection, state: str
) -> None:
    await given.created(db)
    await set_lane_state(db, "default", state)
    before = await given.everything(db)

    with pytest.raises(LaneNotAccepting, match=f"lane 'default' is {state}"):
        await create_execution(
            db,
            [given.new(tags={"shop.tenant": "t"}, idempotency_key="k", execution_kind="new kind")],
        )

    assert await given.everything(db) == before


@each_closed
async def test_nor_work_for_later(db: Connection, state: str) -> None:
    await given.created(db)
    await set_lane_state(db, "default", state)
    before = await given.everything(db)

    with pytest.raises(LaneNotAccepting):
        await create_execution(db, [given.new(delay=60)])

    assert await given.everything(db) == before


@each_closed
async def test_a_batch_with_one_row_on_it_is_refused_as_a_whole(db: Connection, state: str) -> None:
    await given.created(db)
    await set_lane_state(db, "default", state)
    before = await given.everything(db)

    with pytest.raises(LaneNotAccepting):
        await create_execution(
            db, [given.new(lane_id="mail"), given.new(), given.new(lane_id="new")]
        )

    assert await given.everything(db) == before


@each_closed
async def test_other_lanes_take_new_work(db: Connection, state: str) -> None:
    await given.created(db)
    await set_lane_state(db, "default", state)

    answers = await create_execution(db, [given.new(lane_id="mail"), given.new(lane_id="new")])

    assert [type(answer) for answer in answers] == [Created, Created]


@each_closed
async def test_a_submission_from_sql_is_refused_too(db: Connection, state: str) -> None:
    await given.created(db)
    await set_lane_state(db, "default", state)
    before = await given.everything(db)

    with pytest.raises(asyncpg.PostgresError, match=f"lane 'default' is {state}") as raised:
        await db.fetchval("SELECT ff.submit('job', idempotency_key => 'k')")

    assert raised.value.sqlstate == "FF001"
    assert "ff lanes resume 'default'" in str(raised.value.hint)
    assert await given.everything(db) == before


@each_closed
async def test_the_same_id_again_is_a_duplicate(db: Connection, state: str) -> None:
    new = given.new()
    await create_execution(db, [new])
    await set_lane_state(db, "default", state)
    before = await given.everything(db)

    assert await create_execution(db, [new]) == [Duplicate(execution_id=new.execution_id)]

    assert await given.everything(db) == before


@each_closed
async def test_the_same_key_again_is_a_duplicate(db: Connection, state: str) -> None:
    key: dict[str, Any] = {"idempotency_key": "order-7", "input_payload": b"{}"}
    first = await given.created(db, **key)
    await set_lane_state(db, "default", state)
    before = await given.everything(db)

    [answer] = await create_execution(db, [given.new(**key)])

    assert answer == Duplicate(execution_id=first)
    assert await db.fetchval("SELECT ff.submit('job', idempotency_key => 'order-7')") == str(first)
    assert await given.everything(db) == before


@each_closed
async def test_a_key_whose_window_is_over_is_new_work(
    db: Connection, clock: Clock, state: str
) -> None:
    short = ExecutionPolicy(dedup_window=5)
    await given.created(db, idempotency_key="order-7", policy=short)
    await clock.advance(5)
    await set_lane_state(db, "default", state)
    before = await given.everything(db)

    with pytest.raises(LaneNotAccepting):
        await create_execution(db, [given.new(idempotency_key="order-7", policy=short)])

    assert await given.everything(db) == before


@each_closed
async def test_a_batch_with_something_new_beside_a_duplicate_is_refused(
    db: Connection, state: str
) -> None:
    known = given.new()
    await create_execution(db, [known])
    await set_lane_state(db, "default", state)
    before = await given.everything(db)

    with pytest.raises(LaneNotAccepting):
        await create_execution(db, [known, given.new()])

    assert await given.everything(db) == before


async def test_made_active_again_it_takes_new_work(db: Connection) -> None:
    await given.created(db)
    await set_lane_state(db, "default", "disabled")
    await set_lane_state(db, "default", "active")

    [answer] = await create_execution(db, [given.new()])

    assert isinstance(answer, Created)


@pytest.mark.parametrize("state", ["paused", "draining", "disabled"])
async def test_what_runs_is_renewed_and_completes(db: Connection, state: str) -> None:
    lease = await given.claimed(db)
    await set_lane_state(db, "default", state)

    assert await renew(db, [lease], ttl=30) == [None]
    [done] = await complete(db, [Completion(lease, b"done")])

    assert done == Completed(execution_id=lease.execution_id)


@each_resting
async def test_a_retry_waits_until_the_lane_is_active_again(
    db: Connection, clock: Clock, state: str
) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await set_lane_state(db, "default", state)

    await fail(db, [Failure(lease=lease, reason="boom")])
    await clock.advance(60)
    await promote_due(db, limit=10)

    assert await claim(db, given.WORKER, ttl=30) == []
    await set_lane_state(db, "default", "active")
    [task] = await claim(db, given.WORKER, ttl=30)
    assert (task.lease.execution_id, task.lease.attempt_index) == (lease.execution_id, 1)


@each_resting
async def test_what_is_handed_back_or_lapses_waits_until_the_lane_is_active_again(
    db: Connection, clock: Clock, state: str
) -> None:
    handed_back = await given.claimed(db)
    lapsed = await given.claimed(db, ttl=5)
    await set_lane_state(db, "default", state)

    await release(db, [handed_back])
    await clock.advance(5)
    await expire_leases(db, limit=10)

    assert await claim(db, given.WORKER, ttl=30, limit=10) == []
    await set_lane_state(db, "default", "active")
    tasks = await claim(db, given.WORKER, ttl=30, limit=10)
    assert {task.lease.execution_id for task in tasks} == {
        handed_back.execution_id,
        lapsed.execution_id,
    }


async def test_what_is_replayed_on_a_paused_lane_waits_until_it_is_active_again(
    db: Connection,
) -> None:
    execution_id = await execution(db, "failed")
    await set_lane_state(db, "default", "paused")

    await replay_execution(db, execution_id)

    assert await claim(db, given.WORKER, ttl=30) == []
    await set_lane_state(db, "default", "active")
    assert len(await claim(db, given.WORKER, ttl=30)) == 1


@each_closed
async def test_a_closed_lane_takes_no_replay_and_the_others_of_the_call_run_again(
    db: Connection, state: str
) -> None:
    closed = await execution(db, "failed")
    await given.created(db, lane_id="mail")
    [mail] = await claim(db, BOTH, ttl=30)
    await fail(db, [Failure(lease=mail.lease, reason="boom")])
    await set_lane_state(db, "default", state)

    refused, replayed = await replay_executions(db, [closed, mail.lease.execution_id])

    assert isinstance(refused, LaneNotAccepting)
    assert (refused.lane_id, refused.lane_state) == ("default", state)
    assert isinstance(replayed, Replayed)
    assert await given.public_state(db, closed) == "failed"


async def test_a_draining_lane_runs_what_it_has_until_it_is_empty(
    db: Connection, clock: Clock
) -> None:
    retried = await given.claimed(db, policy=given.retrying())
    queued = await given.created(db)
    later = await given.created(db, delay=60)
    flow_id = uuid4()
    home = uuid_partition(flow_id)
    first, second = (given.new(execution_id=ExecutionId(home, uuid4())) for _ in range(2))
    edge = NewEdge(upstream=first.execution_id, downstream=second.execution_id)
    await submit_flow(
        db, NewFlow(flow_id=flow_id, flow_kind="f", members=[first, second], edges=[edge])
    )
    await set_lane_state(db, "default", "draining")
    [before] = await count_by_lane(db)

    await fail(db, [Failure(lease=retried, reason="boom")])
    await clock.advance(60)
    await promote_due(db, limit=10)
    ran: list[ExecutionId] = []
    while tasks := await claim(db, given.WORKER, ttl=30, limit=10):
        ran += [task.lease.execution_id for task in tasks]
        await complete(db, [Completion(task.lease) for task in tasks])
        await dispatch_completions(db, limit=10)

    assert before.left == 5
    expected = [retried.execution_id, queued, later, first.execution_id, second.execution_id]
    assert sorted(ran) == sorted(expected)
    [after] = await count_by_lane(db)
    assert after.left == 0


async def test_the_engine_refuses_with_the_same_error(db: Connection, ff_engine: Engine) -> None:
    lane = "it's late"
    await given.created(db, lane_id=lane)
    await ff_engine.set_lane_state(lane, "draining")

    with pytest.raises(LaneNotAccepting) as raised:
        await ff_engine.create_execution([given.new(lane_id=lane)])

    assert (raised.value.code, raised.value.http_status) == ("lane_not_accepting", 409)
    assert (raised.value.lane_id, raised.value.lane_state) == (lane, "draining")
    assert "ff lanes resume 'it'\"'\"'s late'" in str(raised.value)
    assert not raised.value.retryable


async def test_a_change_counts_from_its_commit(db: Connection, another: Another) -> None:
    await given.created(db)
    operator = await another()
    async with operator.transaction():
        await set_lane_state(operator, "default", "draining")
        [before] = await create_execution(db, [given.new()])

    assert isinstance(before, Created)
    with pytest.raises(LaneNotAccepting):
        await create_execution(db, [given.new()])
