"""How executions ended, and what they returned."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.get_execution_result import get_execution_result
from flowfabric.engine.executions.read_outcomes import read_outcomes
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState
from flowfabric.testing import Clock
from tests import given


async def test_there_is_no_result_before_the_end(db: Connection) -> None:
    waiting = await given.created(db)
    assert await get_execution_result(db, waiting) is None
    [task] = await claim(db, given.WORKER, ttl=30)
    assert await get_execution_result(db, waiting) is None
    await release(db, [task.lease])

    assert await get_execution_result(db, waiting) is None
    assert await get_execution_result(db, ExecutionId.mint()) is None


@pytest.mark.parametrize("result", [b"", b"42", b"\x00\xff", None])
async def test_the_result_is_what_was_reported(db: Connection, result: bytes | None) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease, result)])

    assert await get_execution_result(db, lease.execution_id) == result


async def test_what_did_not_succeed_has_no_result(db: Connection) -> None:
    lease = await given.claimed(db)
    await fail(db, [Failure(lease=lease, reason="boom")])

    assert await get_execution_result(db, lease.execution_id) is None


async def test_outcomes_of_many_are_read_at_once_and_only_of_the_ended(
    db: Connection, clock: Clock
) -> None:
    done = await given.claimed(db, payload_encoding="json")
    await complete(db, [Completion(done, b"42")])
    failed = await given.claimed(db)
    await fail(db, [Failure(lease=failed, reason="boom", category="flaky")])
    cancelled = await given.created(db)
    await cancel_execution(db, cancelled, reason="no")
    expired = await given.created(db, deadline=1)
    await clock.advance(1)
    await expire_executions(db, limit=10)
    running = await given.claimed(db)
    waiting = await given.created(db)
    ended = [done.execution_id, failed.execution_id, cancelled, expired]

    outcomes = await read_outcomes(
        db, [*ended, running.execution_id, waiting, ExecutionId.mint(), done.execution_id]
    )

    assert set(outcomes) == set(ended)
    first = outcomes[done.execution_id]
    assert (first.public_state, first.result) == (PublicState.COMPLETED, b"42")
    assert first.result_encoding == "json"
    second = outcomes[failed.execution_id]
    assert (second.public_state, second.result) == (PublicState.FAILED, None)
    assert (second.failure_reason, second.failure_category) == ("boom", "flaky")
    third = outcomes[cancelled]
    assert third.public_state is PublicState.CANCELLED
    assert (third.cancellation_reason, third.cancelled_by) == ("no", "operator_override")
    fourth = outcomes[expired]
    assert fourth.public_state is PublicState.EXPIRED
    assert fourth.failure_reason == "execution_deadline"


async def test_nobody_asked_for_is_nothing_read(db: Connection) -> None:
    assert await read_outcomes(db, []) == {}


async def test_the_right_uuid_in_another_partition_is_another_execution(db: Connection) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease, b"42")])
    elsewhere = ExecutionId((lease.execution_id.partition_key + 1) % 256, lease.execution_id.uuid)

    assert await read_outcomes(db, [elsewhere]) == {}
