"""What other operations do to a suspended execution, and to one that was."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.conditions import TimeoutOnly
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.end_parked_members import end_parked_members
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked, NotRevokedReason
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotEligible,
    ExecutionNotTerminal,
    TargetNotSignalable,
    WaitpointClosed,
)
from flowfabric.ids import ExecutionId
from flowfabric.joins import AnyOf
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.states import TerminalOutcome
from flowfabric.testing import Clock
from tests import given
from tests.engine.flows.graphs import submitted
from tests.engine.joins.parents import parent
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import Parked, ask, deliver, handler, later


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await parked.keyed(db)


async def with_both(db: Connection, clock: Clock, **fields: Any) -> Parked:
    """A suspended execution with an active waitpoint and a pending one, and a timeout."""
    lease = await given.claimed(db, **fields)
    await parked.pending(db, lease, "ahead")
    return await parked.suspended(db, ask(lease, timeout_at=await later(clock, 3600)))


# Ends.


async def by_cancel(engine: Engine, db: Connection, each: ExecutionId) -> None:
    await engine.cancel_execution(each, reason="no")


async def by_deadline(engine: Engine, db: Connection, each: ExecutionId) -> None:
    await db.execute("UPDATE ff_testing.clock SET now_ms = now_ms + 60000")
    async with db.transaction():
        assert await expire_executions(db, 10) == 1


async def by_an_impossible_dependency(engine: Engine, db: Connection, each: ExecutionId) -> None:
    await terminalize(db, [each], outcome=TerminalOutcome.SKIPPED, reason="dependency_impossible")


@pytest.mark.parametrize(
    ("end", "state"),
    [(by_cancel, "cancelled"), (by_deadline, "expired"), (by_an_impossible_dependency, "skipped")],
)
async def test_an_end_closes_the_suspension_and_every_waitpoint(
    db: Connection,
    ff_engine: Engine,
    clock: Clock,
    end: Callable[[Engine, Connection, ExecutionId], Awaitable[None]],
    state: str,
) -> None:
    held = await with_both(db, clock, deadline=60)

    await end(ff_engine, db, held.id)

    assert await given.public_state(db, held.id) == state
    assert await parked.closed(db, held.id) == (state, {state})
    assert (await parked.suspension(db, held.id))["timeout_at_ms"] is None
    [attempt] = await given.attempts(db, held.id)
    assert attempt["outcome"] == ("cancelled" if state == "skipped" else state)
    assert await given.completion_events(db, held.id) == [state]
    assert await given.lease_events(db, held.id) == [("acquired", None), ("revoked", "suspended")]
    assert await parked.broken(db) == []
    before = await given.everything(db)
    await clock.advance(10**6)
    async with db.transaction():
        assert await expire_suspensions(db, 10) == 0
    with pytest.raises(TargetNotSignalable):
        await deliver(db, held.id, held.waitpoint)
    assert await given.everything(db) == before


@pytest.mark.parametrize("policy", ["cancel_all", "cancel_pending"])
async def test_a_cancelled_flow_ends_a_suspended_member_at_once_or_when_it_is_resumed(
    db: Connection, ff_engine: Engine, clock: Clock, policy: str
) -> None:
    flow = await submitted(ff_engine, "a b")
    [lease] = await flow.claim("a")
    held = await parked.suspended(db, ask(lease))

    await ff_engine.cancel_flow(flow.flow_id, policy=policy, reason="enough", wait=5)

    assert await flow.state("b") == "cancelled"
    if policy == "cancel_pending":
        assert await flow.state("a") == "suspended"
        await deliver(db, held.id, held.waitpoint)
        vector = "runnable/blocked_by_operator/paused_by_flow_cancel/none/attempt_interrupted"
        assert await given.standing(db, held.id) == f"{vector} → waiting"
        assert await claim(db, given.OTHER, ttl=30) == []
        assert await given.completion_events(db, held.id) == []
        assert await end_parked_members(db, 10) == 1
    row = await given.row(db, held.id)
    assert (row["public_state"], row["cancellation_reason"]) == ("cancelled", "enough")
    reason = "cancelled" if policy == "cancel_all" else "resumed"
    assert await parked.closed(db, held.id) == (reason, {reason})
    assert await parked.broken(db) == []


async def test_a_sibling_that_is_not_needed_any_more_ends(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>d b>d", policies={"d": AnyOf()})
    [lease] = await flow.claim("a")
    held = await parked.suspended(db, ask(lease))

    await flow.complete("b")
    await ff_engine.dispatch()

    assert await flow.state("a") == "cancelled"
    assert await parked.closed(db, held.id) == ("cancelled", {"cancelled"})


async def test_the_children_of_a_suspended_parent_that_is_cancelled_end_with_it(
    db: Connection, ff_engine: Engine
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await parked.suspended(db, handler(family.lease, "go", awaits_joins=(family.join().uuid,)))

    await ff_engine.cancel_execution(family.parent, reason="no")
    await family.settle()

    assert (await family.state("p"), await family.state("a")) == ("cancelled", "cancelled")
    assert await parked.broken(db) == []


# What there is nothing to do for.


async def test_there_is_no_lease_to_revoke_and_nothing_to_override(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    held = await with_both(db, clock)
    before = await given.everything(db)

    revoked = await ff_engine.revoke_lease(held.id, reason="no")

    assert revoked == LeaseNotRevoked(execution_id=held.id, reason=NotRevokedReason.NO_ACTIVE_LEASE)
    with pytest.raises(ExecutionNotActive):
        await ff_engine.override_complete(held.id)
    with pytest.raises(ExecutionNotActive):
        await ff_engine.override_fail(held.id, reason="no")
    with pytest.raises(ExecutionNotActive):
        await ff_engine.override_delay(held.id, delay=1)
    with pytest.raises(ExecutionNotEligible):
        await ff_engine.change_priority(held.id, 7)
    with pytest.raises(ExecutionNotEligible):
        await ff_engine.block_execution_for_admission(held.id, "paused_by_operator")
    with pytest.raises(ExecutionNotEligible):
        await ff_engine.unblock_execution(held.id)
    with pytest.raises(ExecutionNotTerminal):
        await ff_engine.replay_execution(held.id)
    assert await given.everything(db) == before


# Afterwards.


async def test_a_replay_begins_without_an_open_suspension(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    held = await with_both(db, clock)
    await ff_engine.cancel_execution(held.id, reason="no")

    await ff_engine.replay_execution(held.id)

    lease = await parked.taken_up(db, held.id)
    assert await parked.closed(db, held.id) == ("cancelled", {"cancelled"})
    assert await ff_engine.observe_signals(lease) == []
    with pytest.raises(WaitpointClosed):
        await deliver(db, held.id, held.waitpoint)
    again = await parked.suspended(db, ask(lease))
    await deliver(db, held.id, again.waitpoint)
    assert await given.public_state(db, held.id) == "resumable"
    assert await parked.broken(db) == []


async def test_retention_deletes_every_row(db: Connection, ff_engine: Engine, clock: Clock) -> None:
    lease = await given.claimed(db)
    held = await parked.suspended(db, ask(lease, idempotency_key="k"))
    await ff_engine.send_signal(
        NewSignal(execution_id=held.id, signal_name="go", idempotency_key="k")
    )
    await deliver(db, held.id, held.waitpoint, idempotency_key="k")
    await complete(db, [Completion(await parked.taken_up(db, held.id))])
    tables = (
        "suspension_current",
        "waitpoint_pending",
        "suspend_dedup",
        "signal_dedup",
        "signal_inbox",
        "signal_event",
    )
    counts = {each: await db.fetchval(f"SELECT count(*) FROM ff.{each}") for each in tables}
    assert min(counts.values()) >= 1, counts

    await db.fetch(
        "SELECT ff.delete_executions(ARRAY[$1::smallint], ARRAY[$2::uuid])",
        held.id.partition_key,
        held.id.uuid,
    )

    for each in (*tables, "exec_core", "attempt"):
        assert await db.fetchval(f"SELECT count(*) FROM ff.{each}") == 0, each


async def test_a_deadline_goes_on_counting_and_an_attempt_timeout_does_not(
    db: Connection, clock: Clock
) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=10))
    lease = await given.claimed(db, policy=policy, deadline=100)
    held = await parked.suspended(
        db, ask(lease, condition=TimeoutOnly(), timeout_at=await later(clock, 3600))
    )

    await clock.advance(50)
    assert await expire_attempts(db, 10) == 0
    await clock.advance(50)
    async with db.transaction():
        assert await expire_executions(db, 10) == 1

    assert await given.public_state(db, held.id) == "expired"
