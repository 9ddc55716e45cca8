"""What was armed is undone when the execution ends otherwise than by success."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.journal.arm_compensation import arm_compensation
from flowfabric.engine.journal.compensation import (
    COMPENSATE_KIND,
    CompensationInput,
)
from flowfabric.engine.journal.read_compensation import read_compensation
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.journal.restart_execution import restart_execution
from flowfabric.engine.journal.start_compensations import compensations_due, start_compensations
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.cancel import Cancellation, cancel
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.override_fail import override_fail
from flowfabric.engine.retention.count_trimmable import count_trimmable
from flowfabric.engine.retention.delete_finished import delete_finished
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.retention.trim_retention import trim_retention
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions
from flowfabric.engine.suspensions.suspension import SuspendRequest
from flowfabric.engine.suspensions.try_suspend import try_suspend
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId, compensation_id
from flowfabric.policy import ExecutionPolicy
from flowfabric.reconcile.find_due import find_due
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.flows.graphs import submitted
from tests.engine.journal.compensating import arm, calls, compensates, disarm, failed, started
from tests.engine.journal.journals import (
    COMPENSATION,
    claimed_again,
    entry,
    journal,
    recorded,
    refund,
)

# How executions end.


async def by_failing(db: Connection, clock: Clock, lease: Lease) -> None:
    await failed(db, lease)


async def by_its_holder(db: Connection, clock: Clock, lease: Lease) -> None:
    await cancel(db, [Cancellation(lease, "no")])


async def by_an_operator(db: Connection, clock: Clock, lease: Lease) -> None:
    await cancel_execution(db, lease.execution_id, reason="no")


async def by_an_operator_failing(db: Connection, clock: Clock, lease: Lease) -> None:
    await override_fail(db, lease.execution_id, reason="no")


async def by_its_deadline(db: Connection, clock: Clock, lease: Lease) -> None:
    await clock.advance(61)
    async with db.transaction():
        await expire_executions(db, 10)


async def by_the_crash_limit(db: Connection, clock: Clock, lease: Lease) -> None:
    await clock.advance(31)
    await expire_leases(db, 10)


async def by_an_operator_after_a_divergence(db: Connection, clock: Clock, lease: Lease) -> None:
    await _suspended(db, lease)
    await cancel_execution(db, lease.execution_id, reason="give up")


async def by_the_timeout_of_a_suspension(db: Connection, clock: Clock, lease: Lease) -> None:
    await _suspended(db, lease, timeout_at=await clock.now() + timedelta(seconds=5))
    await clock.advance(6)
    async with db.transaction():
        assert await expire_suspensions(db, 10) == 1


async def _suspended(db: Connection, lease: Lease, **fields: Any) -> None:
    """As a handler that nothing but an operator or a timeout wakes."""
    async with db.transaction():
        await try_suspend(db, SuspendRequest(lease=lease, keeps_waitpoints=True, **fields))


End = Callable[[Connection, Clock, Lease], Awaitable[None]]
ENDS: list[End] = [
    by_failing,
    by_its_holder,
    by_an_operator,
    by_an_operator_failing,
    by_its_deadline,
    by_the_crash_limit,
    by_an_operator_after_a_divergence,
    by_the_timeout_of_a_suspension,
]


@pytest.mark.parametrize("end", ENDS)
async def test_however_it_ended_one_execution_makes_the_calls_the_last_first(
    db: Connection, clock: Clock, end: End
) -> None:
    policy = ExecutionPolicy(max_reclaim_count=0)
    await given.created(db, namespace="shop", priority=5, deadline=60, policy=policy)
    shop = msgspec.structs.replace(given.WORKER, namespace="shop")
    [task] = await claim(db, shop, ttl=30)
    lease = task.lease
    await arm(db, lease, b'"a"', b'"b"')
    await recorded(db, lease, "charge")
    await arm(db, lease, b'"c"')
    await end(db, clock, lease)

    assert await compensations_due(db)
    assert await started(db) == 1

    made = await read_compensation(db, lease.execution_id)
    assert made is not None
    assert made == compensation_id(lease.execution_id, 0)
    assert await calls(db, lease.execution_id) == [b'"c"', b'"b"', b'"a"']
    [claimed] = await claim(db, shop, ttl=30)
    assert claimed.lease.execution_id == made
    assert (claimed.execution_kind, claimed.lane_id) == (COMPENSATE_KIND, "default")
    assert (claimed.flow_id, claimed.payload_encoding) == (None, "json")
    told = CompensationInput.decode(claimed.input_payload)
    assert (told.execution_id, told.replay_count) == (str(lease.execution_id), 0)
    assert (await given.row(db, made))["priority"] == 5
    assert not await compensates(db, lease.execution_id)


async def test_success_compensates_nothing(db: Connection) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, b'"a"')
    await complete(db, [Completion(lease)])

    assert not await compensations_due(db)
    assert await started(db) == 0
    assert await read_compensation(db, lease.execution_id) is None


async def test_an_execution_that_goes_on_is_not_compensated(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await arm(db, lease, b'"a"')
    await fail(db, [Failure(lease=lease, reason="boom")])

    assert await started(db) == 0
    assert await compensates(db, lease.execution_id)


@pytest.mark.parametrize("armed", [False, True])
async def test_a_success_touches_no_index_also_if_something_is_armed(
    db: Connection, armed: bool
) -> None:
    counters = """SELECT pg_stat_get_xact_tuples_hot_updated('ff.exec_core'::regclass) AS hot,
                         pg_stat_get_xact_tuples_updated('ff.exec_core'::regclass) AS updated"""
    lease = await given.claimed(db)
    if armed:
        await arm(db, lease, b'"a"')
    async with db.transaction():
        before = await db.fetchrow(counters)
        await complete(db, [Completion(lease)])
        after = await db.fetchrow(counters)

    assert before is not None
    assert after is not None
    assert (after["updated"] - before["updated"], after["hot"] - before["hot"]) == (1, 1)


async def test_it_is_started_once(db: Connection) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, b'"a"')
    await failed(db, lease)
    await started(db)
    before = await given.everything(db)

    assert await started(db) == 0

    assert await given.everything(db) == before


async def test_two_sweeps_at_once_start_it_once(db: Connection, another: Another) -> None:
    leases = [await given.claimed(db) for _ in range(3)]
    for lease in leases:
        await arm(db, lease, b'"a"')
        await failed(db, lease)
    await started(db, limit=1)  # there is a route for compensations
    other = await another()

    async with db.transaction():
        assert await start_compensations(db, 1) == 1
        assert await started(other) == 1

    assert await started(db) == 0
    for lease in leases:
        assert await read_compensation(db, lease.execution_id) is not None


async def test_at_most_the_limit_is_started_the_oldest_first(db: Connection, clock: Clock) -> None:
    leases: list[Lease] = []
    for _ in range(3):
        leases.append(await given.claimed(db))
        await clock.advance(1)
    for lease in reversed(leases):
        await arm(db, lease, b'"a"')
        await failed(db, lease)

    assert await started(db, limit=2) == 2

    assert [await compensates(db, lease.execution_id) for lease in leases] == [False, False, True]


async def test_what_was_disarmed_is_not_made(db: Connection) -> None:
    lease, other = await given.claimed(db), await given.claimed(db)
    await arm(db, lease, b'"a"', b'"b"')
    await disarm(db, lease)
    await arm(db, lease, b'"c"')
    await arm(db, other, b'"d"')
    await disarm(db, other)
    await failed(db, lease)
    await failed(db, other)

    assert not await compensates(db, other.execution_id)
    assert await started(db) == 1

    assert await calls(db, lease.execution_id) == [b'"c"']
    assert await read_compensation(db, other.execution_id) is None


async def test_what_was_armed_before_a_restart_is_made_too(db: Connection) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, b'"a"', b'"b"')
    async with db.transaction():
        await restart_execution(db, lease, payload=b"{}")
    lease = await claimed_again(db, lease.execution_id)
    await record_entries(db, [entry(lease, 1, "charge")])
    async with db.transaction():
        await arm_compensation(db, entry(lease, 2, "undo", kind=COMPENSATION), refund(b'"c"'))
    await failed(db, lease)

    await started(db)

    assert await calls(db, lease.execution_id) == [b'"c"', b'"b"', b'"a"']


async def test_a_member_of_a_flow_is_compensated_outside_of_the_flow(
    db: Connection, ff_engine: Engine
) -> None:
    flow = await submitted(ff_engine, "a>b")
    [lease] = await flow.claim("a")
    await arm(db, lease, b'"a"')
    await failed(db, lease)

    assert await started(db) == 1

    made = await read_compensation(db, lease.execution_id)
    assert made is not None
    assert (await given.row(db, made))["flow_id"] is None


# Lanes and retention.


@pytest.mark.parametrize("state", ["draining", "disabled"])
async def test_a_lane_that_takes_nothing_new_holds_up_its_own_only(
    db: Connection, state: str
) -> None:
    closed = await given.claimed(db)
    await arm(db, closed, b'"a"')
    await failed(db, closed)
    await set_lane_state(db, "default", state)
    await given.created(db, lane_id="other")
    [open_] = await claim(db, msgspec.structs.replace(given.WORKER, lanes=("other",)), ttl=30)
    await arm(db, open_.lease, b'"b"')
    await failed(db, open_.lease)

    assert await started(db) == 1
    assert await read_compensation(db, closed.execution_id) is None

    await set_lane_state(db, "default", "active")
    assert await started(db) == 1
    assert await calls(db, closed.execution_id) == [b'"a"']


async def test_an_execution_is_not_deleted_before_its_compensations_are_started(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, b'"a"')
    await failed(db, lease)
    trim = Trim(lane_id="default", retention=0)
    await clock.advance(400 * 86_400)

    assert await count_trimmable(db, trim) == 0
    assert await trim_retention(db, trim) == 0
    assert await delete_finished(db, 10) == 0

    await started(db)
    assert await count_trimmable(db, trim) == 1
    assert await delete_finished(db, 10) == 1
    with pytest.raises(NotFound):
        await read_compensation(db, lease.execution_id)


async def test_a_success_is_deleted_with_what_it_had_armed(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, b'"a"')
    await complete(db, [Completion(lease)])
    await clock.advance(400 * 86_400)

    assert await delete_finished(db, 10) == 1
    assert await journal(db, lease.execution_id) == []


# Looking.


async def test_a_look_finds_it(db: Connection) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, b'"a"')
    assert (await find_due(db, "w", ["start_compensations"])).due == []

    await failed(db, lease)

    assert (await find_due(db, "w", ["start_compensations"])).due == ["start_compensations"]


async def test_the_compensation_of_what_does_not_exist_is_not_found(db: Connection) -> None:
    with pytest.raises(NotFound):
        await read_compensation(db, ExecutionId.mint())


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"execution_id": 3}'])
def test_a_payload_that_is_none_is_refused(payload: bytes) -> None:
    with pytest.raises(ValidationError, match=COMPENSATE_KIND):
        CompensationInput.decode(payload)
