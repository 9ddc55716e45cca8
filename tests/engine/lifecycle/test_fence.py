"""The one fence: in its order, for every operation of a lease holder."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.release import release
from flowfabric.errors import (
    ExecutionNotActive,
    FlowFabricError,
    LeaseExpired,
    NotFound,
    Refusal,
    StaleLease,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import FixedBackoff
from flowfabric.testing import Clock
from tests import given
from tests.engine.lifecycle.fenced import OPERATIONS, Operation, each, each_letting_go

Another = Callable[[], Awaitable[Connection]]
BATCHES = [op for name, op in OPERATIONS.items() if name != "progress"]
AT_ONCE = given.retrying(9, backoff=FixedBackoff(delay=0))


def altered(lease: Lease, **fields: object) -> Lease:
    return msgspec.structs.replace(lease, **fields)


async def refused(db: Connection, operation: Operation, lease: Lease) -> Refusal:
    """The answer to one call, which must be a refusal and must have changed nothing at all."""
    before = await given.everything(db)
    [answer] = await operation(db, [lease])
    assert await given.everything(db) == before
    assert isinstance(answer, NotFound | ExecutionNotActive | StaleLease | LeaseExpired)
    return answer


@each
async def test_1_an_execution_that_is_not_there(db: Connection, operation: Operation) -> None:
    lease = Lease(ExecutionId.mint(), 0, 1, uuid4())

    answer = await refused(db, operation, lease)

    assert isinstance(answer, NotFound)
    assert (answer.entity, answer.code) == ("execution", "execution_not_found")
    assert str(lease.execution_id) in str(answer)


@each
async def test_1_the_right_uuid_in_the_wrong_partition_is_not_there(
    db: Connection, operation: Operation
) -> None:
    lease = await given.claimed(db)
    elsewhere = ExecutionId((lease.execution_id.partition_key + 1) % 256, lease.execution_id.uuid)

    answer = await refused(db, operation, altered(lease, execution_id=elsewhere))

    assert isinstance(answer, NotFound)
    assert answer.entity == "execution"


@each
async def test_2_an_execution_that_was_never_claimed_is_not_active(
    db: Connection, operation: Operation
) -> None:
    execution_id = await given.created(db)

    answer = await refused(db, operation, Lease(execution_id, 0, 0, uuid4()))

    assert isinstance(answer, ExecutionNotActive)
    assert (answer.lifecycle_phase, answer.terminal_outcome) == ("runnable", "none")


@each
async def test_2_not_active_comes_before_every_doubt_about_the_lease(
    db: Connection, clock: Clock, operation: Operation
) -> None:
    lease = await given.claimed(db)
    await clock.advance(31)
    await expire_leases(db, limit=10)

    for doubtful in (
        lease,
        altered(lease, attempt_index=5),
        altered(lease, lease_epoch=99),
        altered(lease, lease_id=uuid4()),
    ):
        answer = await refused(db, operation, doubtful)
        assert isinstance(answer, ExecutionNotActive)
        assert answer.execution_id == lease.execution_id
        assert (answer.lifecycle_phase, answer.terminal_outcome) == ("runnable", "none")
        assert answer.lease_epoch == lease.lease_epoch + 1
        assert answer.attempt_id == lease.attempt_id


@each
async def test_2_not_active_tells_how_the_execution_ended(
    db: Connection, operation: Operation
) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease)])

    answer = await refused(db, operation, altered(lease, lease_id=uuid4()))

    assert isinstance(answer, ExecutionNotActive)
    assert (answer.lifecycle_phase, answer.terminal_outcome) == ("terminal", "success")


@each
async def test_3_an_attempt_that_has_not_begun_is_not_there(
    db: Connection, clock: Clock, operation: Operation
) -> None:
    lease = await given.claimed(db)
    await clock.advance(31)  # also run out: the attempt is looked at first

    answer = await refused(db, operation, altered(lease, attempt_index=1, lease_epoch=99))

    assert isinstance(answer, NotFound)
    assert (answer.entity, answer.code) == ("attempt", "attempt_not_found")


@each
async def test_3_an_earlier_attempt_is_stale(db: Connection, operation: Operation) -> None:
    lease = await given.claimed(db, policy=AT_ONCE)
    await fail(db, [Failure(lease=lease, reason="boom")])
    [current] = await claim(db, given.OTHER, ttl=30)

    answer = await refused(db, operation, lease)

    assert isinstance(answer, StaleLease)
    assert (answer.held, answer.current) == (lease.lease_epoch, current.lease.lease_epoch)


@each
async def test_3_an_earlier_attempt_with_the_current_epoch_is_stale(
    db: Connection, operation: Operation
) -> None:
    lease = await given.claimed(db, policy=AT_ONCE)
    await fail(db, [Failure(lease=lease, reason="boom")])
    [current] = await claim(db, given.OTHER, ttl=30)

    answer = await refused(db, operation, altered(current.lease, attempt_index=0))

    assert isinstance(answer, StaleLease)


@each
async def test_4_an_epoch_that_was_passed_is_stale(
    db: Connection, clock: Clock, operation: Operation
) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(31)
    await expire_leases(db, limit=10)
    [current] = await claim(db, given.OTHER, ttl=30)

    answer = await refused(db, operation, lease)

    assert isinstance(answer, StaleLease)
    assert answer.execution_id == lease.execution_id
    assert (answer.held, answer.current) == (lease.lease_epoch, current.lease.lease_epoch)


@each
@pytest.mark.parametrize("by", [-1, 1])
async def test_4_any_other_epoch_is_stale_even_when_the_lease_ran_out(
    db: Connection, clock: Clock, operation: Operation, by: int
) -> None:
    lease = await given.claimed(db)
    await clock.advance(31)

    answer = await refused(db, operation, altered(lease, lease_epoch=lease.lease_epoch + by))

    assert isinstance(answer, StaleLease)


@each
async def test_4_another_lease_of_the_same_epoch_is_stale(
    db: Connection, operation: Operation
) -> None:
    lease = await given.claimed(db)

    answer = await refused(db, operation, altered(lease, lease_id=uuid4()))

    assert isinstance(answer, StaleLease)


@each
async def test_5_a_lease_that_ran_out_is_expired_before_any_sweep(
    db: Connection, clock: Clock, operation: Operation
) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(30)

    answer = await refused(db, operation, lease)

    assert isinstance(answer, LeaseExpired)
    assert (answer.execution_id, answer.lease_epoch) == (lease.execution_id, lease.lease_epoch)


@each
async def test_a_lease_is_good_until_its_last_millisecond(
    db: Connection, clock: Clock, operation: Operation
) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(29.999)

    [answer] = await operation(db, [lease])

    assert not isinstance(answer, FlowFabricError)


@each
async def test_every_write_tells_when_it_was(
    db: Connection, clock: Clock, operation: Operation
) -> None:
    lease = await given.claimed(db)
    await clock.advance(5)

    await operation(db, [lease])

    stored = await given.row(db, lease.execution_id)
    assert stored["last_mutation_at_ms"] == await clock.now_ms()


@each
async def test_a_refusal_does_not_spoil_its_neighbours(
    db: Connection, clock: Clock, operation: Operation
) -> None:
    ended = await given.claimed(db)
    await complete(db, [Completion(ended)])
    short = await given.claimed(db, ttl=1)
    await clock.advance(2)
    good = [await given.claimed(db, policy=AT_ONCE) for _ in range(2)]
    missing = Lease(ExecutionId.mint(), 0, 1, uuid4())
    forged = altered(await given.claimed(db), lease_id=uuid4())
    bad = [ended, short, missing, forged]
    before = [await given.row(db, lease.execution_id) for lease in bad if lease is not missing]

    answers = await operation(db, [ended, good[0], short, missing, forged, good[1]])

    kinds = [type(answer) for answer in answers]
    if operation.__name__ == "_complete":  # its own earlier success is answered again
        assert not isinstance(answers[0], FlowFabricError)
    else:
        assert kinds[0] is ExecutionNotActive
    assert kinds[2:5] == [LeaseExpired, NotFound, StaleLease]
    assert not any(isinstance(answers[n], FlowFabricError) for n in (1, 5))
    after = [await given.row(db, lease.execution_id) for lease in bad if lease is not missing]
    assert after == before
    for lease in good:
        stored = await given.row(db, lease.execution_id)
        assert stored["last_mutation_at_ms"] == await clock.now_ms()


@each
async def test_an_old_lease_beside_the_current_one_is_still_refused(
    db: Connection, clock: Clock, operation: Operation
) -> None:
    old = await given.claimed(db, ttl=30)
    await clock.advance(31)
    await expire_leases(db, limit=10)
    [current] = await claim(db, given.WORKER, ttl=30)

    refusal, done = await operation(db, [old, current.lease])

    assert isinstance(refusal, FlowFabricError)
    assert not isinstance(done, FlowFabricError)


@each
async def test_the_current_lease_beside_an_old_one_does_not_hide_the_execution(
    db: Connection, operation: Operation
) -> None:
    old = await given.claimed(db)
    await release(db, [old])
    [task] = await claim(db, given.OTHER, ttl=30)
    later = altered(task.lease, attempt_index=task.lease.attempt_index + 1)

    kept, superseded, not_begun = await operation(db, [task.lease, old, later])

    assert not isinstance(kept, FlowFabricError)
    if operation in BATCHES:
        assert isinstance(superseded, StaleLease)
        assert (superseded.held, superseded.current) == (old.lease_epoch, task.lease.lease_epoch)
        assert isinstance(not_begun, NotFound)
        assert not_begun.entity == "attempt"


@each
async def test_a_foreign_partition_beside_the_right_one_refuses_only_itself(
    db: Connection, operation: Operation
) -> None:
    lease = await given.claimed(db)
    elsewhere = ExecutionId((lease.execution_id.partition_key + 1) % 256, lease.execution_id.uuid)

    done, missing = await operation(db, [lease, altered(lease, execution_id=elsewhere)])

    assert not isinstance(done, FlowFabricError)
    assert isinstance(missing, NotFound)


@each
async def test_no_leases_is_no_work(db: Connection, operation: Operation) -> None:
    await given.claimed(db)
    before = await given.everything(db)

    assert await operation(db, []) == []

    assert await given.everything(db) == before


@each
@pytest.mark.parametrize(
    "field", [{"attempt_index": 2**31}, {"lease_epoch": 2**63}], ids=["attempt", "epoch"]
)
async def test_a_number_too_large_to_be_stored_is_refused_like_any_other_wrong_one(
    db: Connection, operation: Operation, field: dict[str, int]
) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)

    [refused] = await operation(db, [altered(lease, **field)])

    assert isinstance(refused, NotFound if "attempt_index" in field else StaleLease)
    assert await given.everything(db) == before


@each_letting_go
async def test_a_holder_that_let_go_can_do_nothing_more(
    db: Connection, operation: Operation
) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await operation(db, [lease])
    before = await given.everything(db)

    [released] = await release(db, [lease])
    noted = await progress(db, lease, percent=1)

    assert isinstance(released, ExecutionNotActive)
    assert isinstance(noted, ExecutionNotActive)
    assert await given.everything(db) == before


@each_letting_go
async def test_letting_go_clears_the_lease(db: Connection, operation: Operation) -> None:
    lease = await given.claimed(db, policy=given.retrying())

    await operation(db, [lease])

    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {
        "ownership_state": "unowned",
        "worker_id": None,
        "worker_instance_id": None,
        "lease_expires_at_ms": None,
        "attempt_timeout_at_ms": None,
    }


@each
async def test_a_call_that_waited_judges_the_row_as_it_is_then(
    db: Connection, another: Another, operation: Operation
) -> None:
    lease = await given.claimed(db)
    first, second = await another(), await another()
    async with first.transaction():
        await release(first, [lease])
        waiting = await given.blocked(db, second, operation(second, [lease]))

    [answer] = await waiting

    assert isinstance(answer, ExecutionNotActive)
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "released"),
    ]
    assert await given.completion_events(db, lease.execution_id) == []
