"""any non-terminal → terminal(cancelled): somebody outside ends it."""

import asyncio
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import ExecutionNotActive, NotFound, StaleLease, ValidationError
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import NO_DATABASE, Action, Another, actions, bad_actors

CANCELLED = "terminal/not_applicable/none/cancelled/attempt_terminal → cancelled"
NEVER_TRIED = "terminal/not_applicable/none/cancelled/pending_first_attempt → cancelled"


async def test_what_waits_is_cancelled(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db)
    await clock.advance(5)

    answer = await cancel_execution(db, execution_id, reason="not needed")

    assert answer == Cancelled(execution_id=execution_id)
    assert await given.standing(db, execution_id) == NEVER_TRIED
    stored, now = await given.row(db, execution_id), await clock.now_ms()
    assert stored == stored | {
        "cancellation_reason": "not needed",
        "cancelled_by": "operator_override",
        "terminal_at_ms": now,
        "last_mutation_at_ms": now,
        "lease_epoch": 0,
        "started_at_ms": None,
    }
    assert await given.lease_events(db, execution_id) == []
    assert await given.completion_events(db, execution_id) == ["cancelled"]
    assert await given.attempts(db, execution_id) == []


async def test_what_is_delayed_is_cancelled_and_never_promoted(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db, delay=10)

    await cancel_execution(db, execution_id, reason="no")

    assert await given.standing(db, execution_id) == NEVER_TRIED
    assert (await given.row(db, execution_id))["delay_until_ms"] is None
    await clock.advance(11)
    assert await promote_due(db, limit=10) == 0


async def test_what_runs_is_cancelled_and_its_holder_fenced_off(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    began = await clock.now_ms()
    await clock.advance(5)

    await cancel_execution(
        db, lease.execution_id, reason="stop", source="flow_cascade", lease_epoch=lease.lease_epoch
    )

    assert await given.standing(db, lease.execution_id) == CANCELLED
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "cancelled_by": "flow_cascade",
        "lease_epoch": lease.lease_epoch + 1,
        "worker_id": None,
        "worker_instance_id": None,
        "lease_expires_at_ms": None,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "cancelled"),
    ]
    assert await given.completion_events(db, lease.execution_id) == ["cancelled"]
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "outcome": "cancelled",
        "started_at_ms": began,
        "ended_at_ms": now,
        "lease_epoch": lease.lease_epoch,
    }
    [late] = await complete(db, [Completion(lease, b"late")])
    assert isinstance(late, ExecutionNotActive)


async def test_an_interrupted_attempt_is_closed_with_it(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    await release(db, [lease])
    await clock.advance(5)

    await cancel_execution(db, lease.execution_id, reason="no")

    assert await given.standing(db, lease.execution_id) == CANCELLED
    [attempt] = await given.attempts(db, lease.execution_id)
    assert (attempt["outcome"], attempt["ended_at_ms"]) == ("cancelled", await clock.now_ms())
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "released"),
    ]
    assert (await given.row(db, lease.execution_id))["lease_epoch"] == lease.lease_epoch + 1


async def test_a_retry_that_waits_is_cancelled_without_a_lease_event(db: Connection) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await fail(db, [Failure(lease=lease, reason="boom")])

    await cancel_execution(db, lease.execution_id, reason="enough")

    assert await given.standing(db, lease.execution_id) == CANCELLED
    [attempt] = await given.attempts(db, lease.execution_id)
    assert (attempt["attempt_index"], attempt["outcome"]) == (0, "retry")
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "retry"),
    ]


async def test_a_second_cancel_answers_the_same_and_the_first_reason_stays(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db)
    await cancel_execution(db, execution_id, reason="first")
    await clock.advance(5)
    before = await given.everything(db)

    again = await cancel_execution(db, execution_id, reason="second", source="system_timeout")

    assert again == Cancelled(execution_id=execution_id, repeated=True)
    assert await given.everything(db) == before


@pytest.mark.parametrize(("end", "word"), [("complete", "completed"), ("fail", "failed")])
async def test_what_ended_otherwise_cannot_be_cancelled(
    db: Connection, end: str, word: str
) -> None:
    lease = await given.claimed(db)
    if end == "complete":
        await complete(db, [Completion(lease)])
    else:
        await fail(db, [Failure(lease=lease, reason="boom")])
    before = await given.everything(db)

    with pytest.raises(ValidationError, match=word) as raised:
        await cancel_execution(db, lease.execution_id, reason="too late")

    assert raised.value.code == "invalid_input"
    assert await given.everything(db) == before


async def test_what_is_not_there_cannot_be_cancelled(db: Connection) -> None:
    missing = ExecutionId.mint()

    with pytest.raises(NotFound) as raised:
        await cancel_execution(db, missing, reason="no")

    assert raised.value.entity == "execution"


@pytest.mark.parametrize("source", ["lease_holder", "flow_cascade", "system_timeout", "my own"])
async def test_anybody_but_an_operator_must_show_the_lease(db: Connection, source: str) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match="lease_epoch"):
        await cancel_execution(db, lease.execution_id, reason="no", source=source)
    with pytest.raises(StaleLease) as raised:
        await cancel_execution(
            db, lease.execution_id, reason="no", source=source, lease_epoch=lease.lease_epoch + 1
        )
    with pytest.raises(StaleLease):
        await cancel_execution(
            db,
            lease.execution_id,
            reason="no",
            source=source,
            lease_epoch=lease.lease_epoch,
            lease_id=uuid4(),
        )

    assert (raised.value.held, raised.value.current) == (lease.lease_epoch + 1, lease.lease_epoch)
    assert await given.everything(db) == before
    await cancel_execution(
        db,
        lease.execution_id,
        reason="no",
        source=source,
        lease_epoch=lease.lease_epoch,
        lease_id=lease.lease_id,
    )
    assert (await given.row(db, lease.execution_id))["cancelled_by"] == source


async def test_without_a_live_lease_nothing_must_be_shown(db: Connection) -> None:
    waiting = await given.created(db)
    lease = await given.claimed(db, priority=9)
    await release(db, [lease])

    for execution_id in (waiting, lease.execution_id):
        answer = await cancel_execution(db, execution_id, reason="no", source="lease_holder")
        assert answer == Cancelled(execution_id=execution_id)


async def test_an_operator_needs_no_lease(db: Connection) -> None:
    lease = await given.claimed(db)

    await cancel_execution(db, lease.execution_id, reason="I say so", lease_epoch=99)

    assert await given.public_state(db, lease.execution_id) == "cancelled"


async def test_of_two_cancels_at_once_the_second_sees_the_first(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    first, second = await another(), await another()
    async with first.transaction():
        await cancel_execution(first, lease.execution_id, reason="first")
        waiting = await given.blocked(
            db, second, cancel_execution(second, lease.execution_id, reason="second")
        )

    assert await waiting == Cancelled(execution_id=lease.execution_id, repeated=True)
    assert len(await given.lease_events(db, lease.execution_id)) == 2
    assert await given.completion_events(db, lease.execution_id) == ["cancelled"]


async def test_many_cancels_at_once_all_succeed_with_one_event(
    db: Connection, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)

    answers = await asyncio.gather(
        *[ff_engine.cancel_execution(lease.execution_id, reason=f"{n}") for n in range(3)]
    )

    assert sorted(answer.repeated for answer in answers) == [False, True, True]
    assert len(await given.lease_events(db, lease.execution_id)) == 2
    assert await given.completion_events(db, lease.execution_id) == ["cancelled"]
    assert len(await actions(db, lease.execution_id)) == 1


async def test_a_cancel_that_waited_for_a_completion_comes_too_late(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    first, second = await another(), await another()
    async with first.transaction():
        await complete(first, [Completion(lease, b"done")])
        waiting = await given.blocked(
            db, second, cancel_execution(second, lease.execution_id, reason="no")
        )

    with pytest.raises(ValidationError, match="completed"):
        await waiting
    assert await given.completion_events(db, lease.execution_id) == ["success"]


async def test_a_cancelled_execution_is_gone_from_the_queue(db: Connection) -> None:
    [first, second] = await create_execution(db, [given.new(priority=9), given.new()])

    await cancel_execution(db, first.execution_id, reason="no")

    [task] = await claim(db, given.WORKER, ttl=30, limit=10)
    assert task.lease.execution_id == second.execution_id


async def test_an_operators_cancel_leaves_one_event_with_who_and_why(db: Connection) -> None:
    lease = await given.claimed(db, tags={"cairn.instance_id": "i-7"})

    await cancel_execution(db, lease.execution_id, reason="not needed", actor="alice")

    assert await actions(db, lease.execution_id) == [
        Action(
            "cancelled",
            "alice",
            "not needed",
            {"old_public_state": "active", "new_public_state": "cancelled"},
        )
    ]
    [event] = await db.fetch("SELECT * FROM ff.operator_event")
    assert event["route_id"] == (await given.row(db, lease.execution_id))["route_id"]
    assert msgspec.json.decode(event["tags"]) == {"cairn.instance_id": "i-7"}


@pytest.mark.parametrize("source", ["lease_holder", "flow_cascade", "system_timeout", "my own"])
async def test_a_cancel_by_anybody_else_is_no_operators_action(db: Connection, source: str) -> None:
    lease = await given.claimed(db)

    await cancel_execution(
        db, lease.execution_id, reason="no", source=source, lease_epoch=lease.lease_epoch
    )

    assert await given.public_state(db, lease.execution_id) == "cancelled"
    assert await actions(db) == []


async def test_whoever_names_the_attempt_must_name_the_one_that_runs(db: Connection) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)

    with pytest.raises(StaleLease):
        await cancel_execution(
            db,
            lease.execution_id,
            reason="no",
            source="lease_holder",
            lease_epoch=lease.lease_epoch,
            attempt_id=attempt_id(lease.execution_id, 1),
        )

    assert await given.everything(db) == before
    answer = await cancel_execution(
        db,
        lease.execution_id,
        reason="no",
        source="lease_holder",
        lease_epoch=lease.lease_epoch,
        attempt_id=lease.attempt_id,
    )
    assert answer == Cancelled(execution_id=lease.execution_id)


async def test_the_engine_passes_everything_that_is_shown_on(
    db: Connection, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    shown: dict[str, Any] = {"lease_epoch": lease.lease_epoch, "lease_id": lease.lease_id}

    wrongs: tuple[dict[str, Any], ...] = (
        {"lease_id": uuid4()},
        {"attempt_id": uuid4()},
        {"lease_epoch": 9},
    )
    for wrong in wrongs:
        with pytest.raises(StaleLease):
            await ff_engine.cancel_execution(
                lease.execution_id, reason="no", source="lease_holder", **(shown | wrong)
            )

    assert await given.public_state(db, lease.execution_id) == "active"


@bad_actors
async def test_an_actor_that_cannot_be_stored_is_refused_before_any_sql(actor: str) -> None:
    with pytest.raises(ValidationError, match="actor"):
        await cancel_execution(NO_DATABASE, ExecutionId.mint(), reason="no", actor=actor)


@pytest.mark.parametrize("source", ["", "a\x00b", "x" * 257])
async def test_a_source_that_cannot_be_stored_is_refused_before_any_sql(source: str) -> None:
    with pytest.raises(ValidationError, match="source"):
        await cancel_execution(NO_DATABASE, ExecutionId.mint(), reason="no", source=source)


async def test_what_was_promised_to_a_worker_is_promised_no_more(db: Connection) -> None:
    execution_id = await given.created(db)
    await db.execute(
        """INSERT INTO ff.claim_grant (
                  partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id,
                  lane_id, worker_capabilities, grant_ttl_ms, issued_at_ms, expires_at_ms,
                  lease_epoch)
           SELECT $1, 'g', $2, 'claim', 'w', 'w-1', 'default', '{}', 60000, ff.now_ms(),
                  ff.now_ms() + 60000, 0""",
        execution_id.partition_key,
        execution_id.uuid,
    )

    await cancel_execution(db, execution_id, reason="no")

    assert await db.fetchval("SELECT count(*) FROM ff.claim_grant") == 0
