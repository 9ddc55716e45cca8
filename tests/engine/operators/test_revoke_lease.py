"""active → runnable: an operator takes an execution away from its holder."""

import asyncio
from typing import Any
from uuid import UUID

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.describe_execution import describe_execution
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.revoke_lease import (
    LeaseNotRevoked,
    LeaseRevoked,
    NotRevokedReason,
    revoke_lease,
)
from flowfabric.errors import ExecutionNotActive, NotFound, StaleLease, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import (
    NO_DATABASE,
    RUNNABLE,
    TERMINAL,
    Action,
    Another,
    actions,
    bad_actors,
    execution,
    waiting,
)
from tests.engine.lifecycle.fenced import Operation, each

INTERRUPTED = "runnable/eligible_now/waiting_for_worker/none/attempt_interrupted → waiting"
EVENTS = [("acquired", None), ("revoked", "operator")]

SOME = UUID(int=7)


async def test_what_is_held_is_claimable_again(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    began = await clock.now_ms()
    await clock.advance(5)

    answer = await revoke_lease(db, lease.execution_id, reason="stuck")

    assert answer == LeaseRevoked(
        execution_id=lease.execution_id,
        lease_id=lease.lease_id,
        lease_epoch=lease.lease_epoch + 1,
        worker_instance_id="w-1",
    )
    assert await given.standing(db, lease.execution_id) == INTERRUPTED
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "lease_epoch": lease.lease_epoch + 1,
        "lease_expires_at_ms": None,
        "worker_id": None,
        "worker_instance_id": None,
        "attempt_timeout_at_ms": None,
        "started_at_ms": began,
        "last_mutation_at_ms": now,
        "retry_count": 0,
    }
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "outcome": "lease_revoked",
        "lease_id": lease.lease_id,
        "lease_epoch": lease.lease_epoch,
        "worker_instance_id": "w-1",
        "started_at_ms": began,
        "ended_at_ms": now,
    }


async def test_one_lease_event_tells_that_an_operator_did_it(db: Connection) -> None:
    lease = await given.claimed(db)

    await revoke_lease(db, lease.execution_id, reason="stuck")

    assert await given.lease_events(db, lease.execution_id) == EVENTS
    assert await given.completion_events(db, lease.execution_id) == []


async def test_one_operator_event_tells_who_why_and_what(db: Connection) -> None:
    lease = await given.claimed(db)

    await revoke_lease(db, lease.execution_id, reason="stuck", actor="alice")

    assert await actions(db, lease.execution_id) == [
        Action(
            "lease_revoked",
            "alice",
            "stuck",
            {
                "lease_id": str(lease.lease_id),
                "worker_instance_id": "w-1",
                "attempt_index": 0,
                "old_lease_epoch": lease.lease_epoch,
                "new_lease_epoch": lease.lease_epoch + 1,
            },
        )
    ]


async def test_its_events_carry_route_and_tags_of_the_execution(db: Connection) -> None:
    lease = await given.claimed(db, tags={"cairn.instance_id": "i-7"})

    await revoke_lease(db, lease.execution_id, reason="stuck")

    stored = await given.row(db, lease.execution_id)
    for table in ("lease_event", "operator_event"):
        last = await db.fetchrow(f"SELECT * FROM ff.{table} ORDER BY event_id DESC LIMIT 1")
        assert last is not None
        assert last["route_id"] == stored["route_id"]
        assert last["partition_key"] == lease.execution_id.partition_key
        assert msgspec.json.decode(last["tags"]) == {"cairn.instance_id": "i-7"}


@each
async def test_nothing_that_the_old_holder_writes_is_taken(
    db: Connection, operation: Operation
) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await revoke_lease(db, lease.execution_id, reason="stuck")
    before = await given.everything(db)

    [answer] = await operation(db, [lease])

    assert isinstance(answer, ExecutionNotActive)
    assert await given.everything(db) == before


@each
async def test_nor_while_the_next_one_holds_it(db: Connection, operation: Operation) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await revoke_lease(db, lease.execution_id, reason="stuck")
    await claim(db, given.OTHER, ttl=30)
    before = await given.everything(db)

    [answer] = await operation(db, [lease])

    assert isinstance(answer, StaleLease)
    assert await given.everything(db) == before


async def test_the_next_claim_goes_on_with_the_same_attempt(db: Connection) -> None:
    lease = await given.claimed(db)
    await revoke_lease(db, lease.execution_id, reason="stuck")

    [task] = await claim(db, given.OTHER, ttl=30)

    assert (task.lease.attempt_index, task.total_attempt_count) == (0, 1)
    assert task.lease.lease_epoch == lease.lease_epoch + 2
    assert (await given.row(db, lease.execution_id))["lease_reclaim_count"] == 1


async def test_what_is_not_there_has_no_lease(db: Connection) -> None:
    with pytest.raises(NotFound) as raised:
        await revoke_lease(db, ExecutionId.mint(), reason="no")

    assert raised.value.entity == "execution"
    assert await actions(db) == []


@pytest.mark.parametrize("state", [*RUNNABLE, *TERMINAL])
async def test_what_nobody_holds_is_left_as_it_is(db: Connection, clock: Clock, state: str) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    answer = await revoke_lease(db, execution_id, reason="no")

    assert answer == LeaseNotRevoked(
        execution_id=execution_id, reason=NotRevokedReason.NO_ACTIVE_LEASE
    )
    assert await given.everything(db) == before


async def test_a_second_call_finds_nothing_to_revoke(db: Connection) -> None:
    lease = await given.claimed(db)
    await revoke_lease(db, lease.execution_id, reason="stuck", expected_lease_id=lease.lease_id)
    before = await given.everything(db)

    again = await revoke_lease(
        db, lease.execution_id, reason="stuck", expected_lease_id=lease.lease_id
    )

    assert again == LeaseNotRevoked(
        execution_id=lease.execution_id, reason=NotRevokedReason.NO_ACTIVE_LEASE
    )
    assert await given.everything(db) == before


def meant(lease: Any, **changes: Any) -> dict[str, Any]:
    """Everything that may be expected of a lease, with changes."""
    return {
        "worker_instance_id": "w-1",
        "expected_lease_id": lease.lease_id,
        "expected_lease_epoch": lease.lease_epoch,
    } | changes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"worker_instance_id": "w-2"}, NotRevokedReason.DIFFERENT_WORKER_INSTANCE_ID),
        ({"expected_lease_id": UUID(int=1)}, NotRevokedReason.LEASE_ID_MISMATCH),
        ({"expected_lease_epoch": 9}, NotRevokedReason.EPOCH_MOVED),
        (
            {
                "worker_instance_id": "w-2",
                "expected_lease_id": UUID(int=1),
                "expected_lease_epoch": 9,
            },
            NotRevokedReason.DIFFERENT_WORKER_INSTANCE_ID,
        ),
        (
            {"expected_lease_id": UUID(int=1), "expected_lease_epoch": 9},
            NotRevokedReason.LEASE_ID_MISMATCH,
        ),
    ],
)
async def test_a_lease_that_was_not_meant_stays_and_the_first_difference_is_told(
    db: Connection, changes: dict[str, Any], reason: NotRevokedReason
) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)

    answer = await revoke_lease(db, lease.execution_id, reason="no", **meant(lease, **changes))

    assert answer == LeaseNotRevoked(execution_id=lease.execution_id, reason=reason)
    assert await given.everything(db) == before


async def test_the_lease_that_was_meant_is_revoked(db: Connection) -> None:
    lease = await given.claimed(db)

    answer = await revoke_lease(db, lease.execution_id, reason="stuck", **meant(lease))

    assert isinstance(answer, LeaseRevoked)


async def test_its_id_may_be_written_as_text(db: Connection) -> None:
    lease = await given.claimed(db)

    answer = await revoke_lease(
        db, lease.execution_id, reason="stuck", expected_lease_id=str(lease.lease_id).upper()
    )

    assert isinstance(answer, LeaseRevoked)


async def test_its_id_may_be_written_as_execution_attempt_and_epoch(db: Connection) -> None:
    lease = await given.claimed(db)
    alias = f"pg:{lease.execution_id.uuid}:0:{lease.lease_epoch}"

    answer = await revoke_lease(db, lease.execution_id, reason="stuck", expected_lease_id=alias)

    assert isinstance(answer, LeaseRevoked)
    assert answer.lease_id == lease.lease_id


@pytest.mark.parametrize("numbers", ["1:1", "0:0", "0:2", "999999999:999999999999999999"])
async def test_another_attempt_or_epoch_in_its_id_is_another_lease(
    db: Connection, numbers: str
) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)

    answer = await revoke_lease(
        db,
        lease.execution_id,
        reason="stuck",
        expected_lease_id=f"pg:{lease.execution_id.uuid}:{numbers}",
    )

    assert answer == LeaseNotRevoked(
        execution_id=lease.execution_id, reason=NotRevokedReason.LEASE_ID_MISMATCH
    )
    assert await given.everything(db) == before


async def test_the_id_is_the_one_that_a_description_shows(db: Connection) -> None:
    lease = await given.claimed(db)
    shown = await describe_execution(db, lease.execution_id)
    assert shown is not None
    assert shown.current_lease is not None

    answer = await revoke_lease(
        db, lease.execution_id, reason="stuck", expected_lease_id=shown.current_lease.lease_id
    )

    assert isinstance(answer, LeaseRevoked)
    assert answer.lease_id == shown.current_lease.lease_id


@all_cases(
    "expected",
    ["nonsense", SOME.hex, "pg:", f"pg:{SOME}", f"pg:{SOME}:0:1", f"pg:{'-' * 36}:0:1"],
)
async def test_an_id_that_is_none_is_refused_before_any_sql(expected: str) -> None:
    with pytest.raises(ValidationError, match="expected_lease_id") as raised:
        await revoke_lease(NO_DATABASE, ExecutionId.mint(), reason="no", expected_lease_id=expected)

    assert raised.value.code == "invalid_input"


@bad_actors
async def test_an_actor_that_cannot_be_stored_is_refused_before_any_sql(actor: str) -> None:
    with pytest.raises(ValidationError, match="actor") as raised:
        await revoke_lease(NO_DATABASE, ExecutionId.mint(), reason="no", actor=actor)

    assert raised.value.code == "invalid_input"


async def test_any_reason_can_be_stored(db: Connection) -> None:
    lease = await given.claimed(db)

    await revoke_lease(db, lease.execution_id, reason="a\x00b\ud800" + "x" * 20_000)

    [told] = await actions(db, lease.execution_id)
    assert told.reason is not None
    assert told.reason.startswith("a\N{REPLACEMENT CHARACTER}b")
    assert len(told.reason.encode()) <= 16 * 1024


async def test_a_lease_that_lapsed_and_was_not_taken_back_yet_is_revoked(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(60)

    answer = await revoke_lease(db, lease.execution_id, reason="gone")

    assert isinstance(answer, LeaseRevoked)
    assert await given.lease_events(db, lease.execution_id) == EVENTS


async def test_of_two_revocations_at_once_one_revokes(db: Connection, ff_engine: Engine) -> None:
    lease = await given.claimed(db)

    answers = await asyncio.gather(
        *[ff_engine.revoke_lease(lease.execution_id, reason=f"{n}") for n in range(2)]
    )

    assert {type(answer) for answer in answers} == {LeaseRevoked, LeaseNotRevoked}
    assert await given.lease_events(db, lease.execution_id) == EVENTS
    assert len(await actions(db, lease.execution_id)) == 1


async def test_a_revocation_that_waited_for_a_completion_finds_no_lease(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    holder = await another()
    async with holder.transaction():
        [done] = await complete(holder, [Completion(lease, b"done")])
        revoking = await waiting(db, ff_engine.revoke_lease(lease.execution_id, reason="stuck"))

    assert await revoking == LeaseNotRevoked(
        execution_id=lease.execution_id, reason=NotRevokedReason.NO_ACTIVE_LEASE
    )
    assert done == Completed(execution_id=lease.execution_id)
    assert await given.completion_events(db, lease.execution_id) == ["success"]
    assert await actions(db) == []


async def test_a_completion_that_waited_for_a_revocation_is_refused(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    operator, holder = await another(), await another()
    async with operator.transaction():
        await revoke_lease(operator, lease.execution_id, reason="stuck")
        completing = await given.blocked(db, holder, complete(holder, [Completion(lease, b"")]))

    [refused] = await completing
    assert isinstance(refused, ExecutionNotActive)
    assert await given.standing(db, lease.execution_id) == INTERRUPTED
    assert await given.completion_events(db, lease.execution_id) == []


async def test_a_revocation_that_waited_for_a_renewal_revokes(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    holder = await another()
    async with holder.transaction():
        [renewed] = await renew(holder, [lease], ttl=60)
        revoking = await waiting(db, ff_engine.revoke_lease(lease.execution_id, reason="stuck"))

    assert renewed is None
    assert isinstance(await revoking, LeaseRevoked)
    assert await given.standing(db, lease.execution_id) == INTERRUPTED


async def test_a_renewal_that_waited_for_a_revocation_is_refused(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    operator, holder = await another(), await another()
    async with operator.transaction():
        await revoke_lease(operator, lease.execution_id, reason="stuck")
        renewing = await given.blocked(db, holder, renew(holder, [lease], ttl=60, record=True))

    [refused] = await renewing
    assert isinstance(refused, ExecutionNotActive)
    assert await given.lease_events(db, lease.execution_id) == EVENTS
