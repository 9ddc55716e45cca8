"""The handler begins anew: same execution, other arguments, and an empty journal."""

from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.arm_compensation import arm_compensation
from flowfabric.engine.journal.disarm_compensations import disarm_compensations
from flowfabric.engine.journal.kept_entries import kept_entries
from flowfabric.engine.journal.read_journal import read_journal
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.journal.restart_execution import RestartedExecution, restart_execution
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import MAX_PAYLOAD, Duplicate, create_execution
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.errors import (
    ExecutionNotActive,
    IdempotencyConflict,
    LeaseExpired,
    StaleLease,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from flowfabric.states import AttemptType, JournalKind
from flowfabric.testing import Clock
from tests import given
from tests.engine.journal.journals import (
    COMPENSATION,
    claimed_again,
    entry,
    journal,
    lost,
    recorded,
    refund,
    rows,
    signalled,
)


async def restarted(db: Connection, lease: Lease, payload: bytes = b"{}") -> RestartedExecution:
    async with db.transaction():
        answer = await restart_execution(db, lease, payload=payload, payload_encoding="json")
    assert isinstance(answer, RestartedExecution)
    return answer


async def armed(db: Connection, execution_id: ExecutionId) -> list[bytes | None]:
    kept = (await kept_entries(db, [execution_id]))[execution_id]
    return [each.value for each in kept.armed]


async def test_the_next_attempt_begins_with_the_new_arguments_and_an_empty_journal(
    db: Connection,
) -> None:
    lease = await given.claimed(db, input_payload=b"1", payload_encoding="json")
    await recorded(db, lease, "one", "two!", "~nap?")

    answer = await restarted(db, lease, b"2")

    assert answer == RestartedExecution(execution_id=lease.execution_id, generation=1)
    assert await journal(db, lease.execution_id) == ["0 mark done"]
    [again] = await claim(db, given.WORKER, ttl=30)
    assert (again.input_payload, again.payload_encoding) == (b"2", "json")
    assert (again.lease.attempt_index, again.attempt_type) == (1, AttemptType.RESTART)
    found = (await read_journal(db, [lease.execution_id]))[lease.execution_id]
    assert (found.generation, found.next_seq) == (1, 1)
    [attempt] = await given.attempts(db, lease.execution_id)
    assert (attempt["attempt_index"], attempt["outcome"]) == (0, "restarted")


async def test_every_restart_begins_the_next_generation(db: Connection) -> None:
    lease = await given.claimed(db)
    for generation in (1, 2, 3):
        assert (await restarted(db, lease)).generation == generation
        lease = await claimed_again(db, lease.execution_id)
        await recorded(db, lease, "one")

    [mark, _] = await rows(db, lease.execution_id)
    assert mark == mark | {
        "seq": 0,
        "kind": "mark",
        "state": "done",
        "attempt_index": 2,
        "encoding": "json",
        "value": b'{"generation":3}',
    }


async def test_counted_retries_and_lost_leases_are_forgotten(db: Connection, clock: Clock) -> None:
    first = await given.claimed(db, policy=given.retrying(max_retries=1))
    await fail(db, [Failure(lease=first, reason="boom")])
    await clock.advance(120)
    await promote_due(db, 10)
    lease = await lost(db, clock, await claimed_again(db, first.execution_id))

    await restarted(db, lease)

    row = await given.row(db, lease.execution_id)
    assert (row["retry_count"], row["lease_reclaim_count"], row["infra_release_count"]) == (0, 0, 0)
    assert row["public_state"] == "waiting"


async def test_the_deadline_is_not_granted_anew(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, deadline=60)
    before = (await given.row(db, lease.execution_id))["deadline_at_ms"]
    await clock.advance(10)

    await restarted(db, lease)

    assert (await given.row(db, lease.execution_id))["deadline_at_ms"] == before


async def test_the_newest_hundred_attempts_are_kept(db: Connection) -> None:
    lease = await given.claimed(db, policy=ExecutionPolicy())
    await db.execute(
        "INSERT INTO ff.attempt (partition_key, attempt_index, execution_id, lease_id, lease_epoch,"
        " started_at_ms, ended_at_ms, attempt_type, outcome, worker_id, worker_instance_id)"
        " SELECT $1, n, $2, gen_random_uuid(), n, 0, 0, 'restart', 'restarted', 'w', 'w-1'"
        " FROM generate_series(0, 149) n",
        lease.execution_id.partition_key,
        lease.execution_id.uuid,
    )
    await db.execute("UPDATE ff.lease SET attempt_index = 150")
    lease = Lease(lease.execution_id, 150, lease.lease_epoch, lease.lease_id)

    await restarted(db, lease)

    kept = [each["attempt_index"] for each in await given.attempts(db, lease.execution_id)]
    assert kept == list(range(51, 151))


# Signals.


async def test_signals_that_were_consumed_stay_consumed_and_the_others_are_kept(
    db: Connection,
) -> None:
    lease = await given.claimed(db)
    await signalled(db, lease.execution_id, "a", "b", "c")
    await record_entries(db, [entry(lease, 1, "wait", kind=JournalKind.SIGNAL, signal_seq=2)])

    await restarted(db, lease)

    lease = await claimed_again(db, lease.execution_id)
    found = (await read_journal(db, [lease.execution_id]))[lease.execution_id]
    assert [each.signal_name for each in found.signals] == ["a", "c"]
    assert found.signal_seq == 3
    await record_entries(db, [entry(lease, 1, "wait", kind=JournalKind.SIGNAL, signal_seq=1)])
    await restarted(db, lease)
    found = (await read_journal(db, [lease.execution_id]))[lease.execution_id]
    assert [each.signal_name for each in found.signals] == ["c"]


# Compensations.


async def arm(db: Connection, lease: Lease, seq: int, payload: bytes, occurrence: int = 0) -> None:
    write = entry(lease, seq, "undo", kind=COMPENSATION, occurrence=occurrence)
    async with db.transaction():
        assert await arm_compensation(db, write, refund(payload)) is None


async def test_armed_compensations_are_carried_over_and_leave_their_keys_free(
    db: Connection,
) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, 1, b'"a"')
    await recorded(db, lease, "charge")
    await arm(db, lease, 3, b'"b"', occurrence=1)

    await restarted(db, lease)

    assert await journal(db, lease.execution_id) == ["-2 undo done", "-1 undo done", "0 mark done"]
    assert await armed(db, lease.execution_id) == [refund(b'"a"').encode(), refund(b'"b"').encode()]
    lease = await claimed_again(db, lease.execution_id)
    found = (await read_journal(db, [lease.execution_id]))[lease.execution_id]
    assert [each.kind for each in found.entries] == [JournalKind.MARK]
    await arm(db, lease, 1, b'"c"')
    await restarted(db, lease)
    assert await armed(db, lease.execution_id) == [
        refund(payload).encode() for payload in (b'"a"', b'"b"', b'"c"')
    ]
    assert (await given.row(db, lease.execution_id))["compensates"]


async def test_what_was_disarmed_is_not_carried_over(db: Connection) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, 1, b'"a"')
    await restarted(db, lease)
    lease = await claimed_again(db, lease.execution_id)
    await arm(db, lease, 1, b'"b"')
    async with db.transaction():
        await disarm_compensations(db, entry(lease, 2, "disarm", kind=COMPENSATION))
    await arm(db, lease, 3, b'"c"', occurrence=1)

    await restarted(db, lease)

    assert await journal(db, lease.execution_id) == ["-2 undo done", "0 mark done"]
    assert await armed(db, lease.execution_id) == [refund(b'"c"').encode()]


# What was submitted.


async def test_a_submit_is_compared_with_what_was_submitted_however_often_it_restarted(
    db: Connection,
) -> None:
    key: dict[str, Any] = {"idempotency_key": "order-7", "payload_encoding": "json"}
    lease = await given.claimed(db, input_payload=b'{"n": 1}', **key)
    for payload in (b"2", b"3"):
        await restarted(db, lease, payload)
        [claimed] = await claim(db, given.WORKER, ttl=30)
        lease = claimed.lease

    answers = await create_execution(
        db,
        [given.new(input_payload=b'{"n":1}', **key), given.new(input_payload=b"3", **key)],
    )

    assert answers[0] == Duplicate(execution_id=lease.execution_id)
    assert isinstance(answers[1], IdempotencyConflict)


# Refusals and repeated calls.


async def test_a_repeated_call_gets_the_first_answer_and_changes_nothing(db: Connection) -> None:
    lease = await given.claimed(db)
    await recorded(db, lease, "one")
    await restarted(db, lease, b"2")
    before = await given.everything(db)

    again = await restarted(db, lease, b"2")

    assert again == RestartedExecution(execution_id=lease.execution_id, generation=1, repeated=True)
    assert await given.everything(db) == before


async def test_a_lease_that_is_not_held_restarts_nothing(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await recorded(db, lease, "one")
    await clock.advance(31)
    before = await given.everything(db)

    async def refusal() -> Any:
        async with db.transaction():
            return await restart_execution(db, lease, payload=b"")

    assert isinstance(await refusal(), LeaseExpired)
    assert await given.everything(db) == before
    await lost(db, clock, lease)
    before = await given.everything(db)
    assert isinstance(await refusal(), StaleLease)
    assert await given.everything(db) == before


async def test_a_holder_whose_restart_was_claimed_by_the_next_is_refused(db: Connection) -> None:
    lease = await given.claimed(db)
    await restarted(db, lease)
    await claimed_again(db, lease.execution_id)

    async with db.transaction():
        refused = await restart_execution(db, lease, payload=b"")

    assert isinstance(refused, StaleLease)


async def test_an_execution_that_has_ended_does_not_restart(db: Connection) -> None:
    lease = await given.claimed(db)
    await fail(db, [Failure(lease=lease, reason="boom")])

    async with db.transaction():
        refused = await restart_execution(db, lease, payload=b"")

    assert isinstance(refused, ExecutionNotActive)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"payload": "text"}, "payload"),
        ({"payload": None}, "payload"),
        ({"payload": b"x", "payload_encoding": ""}, "payload_encoding"),
        ({"payload": b"x", "payload_encoding": "a\x00"}, "payload_encoding"),
    ],
)
async def test_bad_arguments_are_refused_before_anything_is_written(
    db: Connection, fields: dict[str, Any], named: str
) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match=named):
        await restart_execution(db, lease, **fields)

    assert await given.everything(db) == before


async def test_a_payload_that_is_too_large_is_refused(db: Connection) -> None:
    lease = await given.claimed(db)

    with pytest.raises(ValidationError) as refused:
        await restart_execution(db, lease, payload=bytes(MAX_PAYLOAD + 1))

    assert refused.value.code == "payload_too_large"
