"""any non-terminal → terminal: many at once, held or not."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.errors import ExecutionNotActive
from flowfabric.ids import ExecutionId
from flowfabric.states import TerminalOutcome
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.grants import granted


async def test_it_ends_what_has_not_ended_and_names_it(db: Connection, clock: Clock) -> None:
    done = await given.claimed(db)
    await complete(db, [Completion(done, b"42")])
    held = await given.claimed(db)
    interrupted = await given.claimed(db)
    await release(db, [interrupted])
    waiting = await given.created(db)
    delayed = await given.created(db, delay=60)
    ended_before = await given.row(db, done.execution_id)
    open_ones = {held.execution_id, interrupted.execution_id, waiting, delayed}
    await clock.advance(5)

    ended = await terminalize(
        db,
        [*open_ones, done.execution_id, ExecutionId.mint()],
        outcome=TerminalOutcome.CANCELLED,
        reason="all must go",
        by="flow_cascade",
    )

    assert ended == open_ones
    for execution_id in open_ones:
        stored = await given.row(db, execution_id)
        assert stored == stored | {
            "public_state": "cancelled",
            "cancellation_reason": "all must go",
            "cancelled_by": "flow_cascade",
            "failure_reason": None,
            "terminal_at_ms": await clock.now_ms(),
        }
        assert await given.completion_events(db, execution_id) == ["cancelled"]
    assert await db.fetchval("SELECT count(*) FROM ff.ready") == 0
    assert await given.row(db, done.execution_id) == ended_before
    assert await given.completion_events(db, done.execution_id) == ["success"]
    [late] = await complete(db, [Completion(held)])
    assert isinstance(late, ExecutionNotActive)
    assert late.lease_epoch == held.lease_epoch + 1


@pytest.mark.parametrize(
    ("outcome", "lease_event"),
    [
        (TerminalOutcome.SKIPPED, ("revoked", None)),
        (TerminalOutcome.FAILED, ("revoked", None)),
        (TerminalOutcome.EXPIRED, ("expired", None)),
        (TerminalOutcome.CANCELLED, ("revoked", "cancelled")),
    ],
)
async def test_each_outcome_is_told_by_its_name(
    db: Connection, outcome: TerminalOutcome, lease_event: tuple[str, str | None]
) -> None:
    lease = await given.claimed(db)

    await terminalize(db, [lease.execution_id], outcome=outcome, reason="why")

    assert await given.public_state(db, lease.execution_id) == outcome.value
    assert await given.completion_events(db, lease.execution_id) == [outcome.value]
    assert await given.lease_events(db, lease.execution_id) == [("acquired", None), lease_event]
    [attempt] = await given.attempts(db, lease.execution_id)
    skipped = outcome is TerminalOutcome.SKIPPED
    assert attempt["outcome"] == ("cancelled" if skipped else outcome.value)


@pytest.mark.parametrize("state", ["active", "released"])
async def test_the_attempt_of_one_that_is_skipped_ends_as_cancelled(
    db: Connection, state: str
) -> None:
    lease = await given.claimed(db)
    if state == "released":
        await release(db, [lease])

    await terminalize(
        db, [lease.execution_id], outcome=TerminalOutcome.SKIPPED, reason="dependency_impossible"
    )

    assert await given.public_state(db, lease.execution_id) == "skipped"
    assert (await given.row(db, lease.execution_id))["failure_reason"] == "dependency_impossible"
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt["outcome"] == "cancelled"
    if state == "active":
        assert attempt["failure_reason"] == "dependency_impossible"


async def test_one_named_twice_ends_once(db: Connection) -> None:
    execution_id = await given.created(db)

    ended = await terminalize(
        db, [execution_id, execution_id], outcome=TerminalOutcome.SKIPPED, reason=None
    )

    assert ended == {execution_id}
    assert await given.completion_events(db, execution_id) == ["skipped"]


async def test_nothing_named_is_nothing_ended(db: Connection) -> None:
    await given.created(db)
    before = await given.everything(db)

    assert await terminalize(db, [], outcome=TerminalOutcome.CANCELLED) == set()

    assert await given.everything(db) == before


@pytest.mark.parametrize("outcome", [each for each in TerminalOutcome if each != "none"])
async def test_what_ended_keeps_no_grant(
    db: Connection, clock: Clock, outcome: TerminalOutcome
) -> None:
    await granted.keyed(db)
    done = await given.claimed(db)
    await complete(db, [Completion(done)])
    lost = await granted.lost(db, clock)
    await granted.reclaim_granted(db, lost.execution_id)
    waiting, other = await given.created(db), await given.created(db)
    await granted.claim_granted(db, waiting)
    await granted.claim_granted(db, other)

    await terminalize(db, [waiting, lost.execution_id, done.execution_id], outcome=outcome)

    assert [grant["execution_id"] for grant in await granted.grants(db)] == [other.uuid]


@pytest.mark.parametrize("outcome", [TerminalOutcome.FAILED, TerminalOutcome.CANCELLED])
async def test_only_what_failed_has_a_category(db: Connection, outcome: TerminalOutcome) -> None:
    execution_id = await given.created(db)

    await terminalize(db, [execution_id], outcome=outcome, reason="so", category="infra_crash")

    failed = outcome is TerminalOutcome.FAILED
    stored = await given.row(db, execution_id)
    assert stored["failure_category"] == ("infra_crash" if failed else None)
    assert stored["failure_reason"] == ("so" if failed else None)


async def test_an_attempt_that_was_laid_down_meanwhile_ends_with_its_execution(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    holder, ender = await another(), await another()

    async def locked_and_ended() -> set[ExecutionId]:
        async with ender.transaction():
            await lock_executions(ender, [lease.execution_id])
            return await terminalize(ender, [lease.execution_id], outcome=TerminalOutcome.CANCELLED)

    async with holder.transaction():
        await release(holder, [lease])
        task = await given.blocked(db, ender, locked_and_ended())

    assert await task == {lease.execution_id}
    [attempt] = await given.attempts(db, lease.execution_id)
    assert (attempt["outcome"], attempt["worker_instance_id"]) == ("cancelled", "w-1")
