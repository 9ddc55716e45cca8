"""Why an execution may not be claimed: it is not due, held back, suspended or depends on others."""

from datetime import timedelta

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.executions.explanation import ExplanationReason, ReasonCode
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.operators.unblock_execution import unblock_execution
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given
from tests.engine.executions.explained import at, only, whys, worker


async def first(db: Connection, execution_id: ExecutionId) -> ExplanationReason:
    """The decisive reason."""
    return (await explain_execution(db, execution_id)).reasons[0]


@pytest.mark.parametrize(
    ("delay", "span"),
    [
        (60, "60 s"),
        (119, "119 s"),
        (120, "2 minutes"),
        (7199, "120 minutes"),
        (7200, "2 hours"),
        (2 * 86400, "2 days"),
        (30 * 86400, "30 days"),
    ],
)
async def test_it_is_delayed(db: Connection, clock: Clock, delay: float, span: str) -> None:
    execution_id = await given.created(db, delay=delay)
    until = await clock.now() + timedelta(seconds=delay)
    await worker(db)

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.NOT_DUE,
        message=f"it is delayed until {at(until)}",
        remedy=f"it becomes claimable by itself in {span}",
        clears_at=until,
    )


async def test_it_waits_for_its_retry_after_a_failure(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await fail(db, [Failure(lease=lease, reason="boom", category="flaky")])
    until = await clock.now() + timedelta(seconds=1)

    reason = await first(db, lease.execution_id)

    assert (reason.why, reason.clears_at) == (ReasonCode.NOT_DUE, until)
    assert reason.message == f"attempt 1 failed (flaky: boom); retry 1 waits until {at(until)}"


async def test_it_was_resumed_with_a_delay(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, delay=60)
    until = await clock.now() + timedelta(seconds=60)
    await db.execute("UPDATE ff.exec_core SET blocking_reason = 'waiting_for_resume_delay'")

    reason = await first(db, execution_id)

    assert reason.message == f"it was resumed with a delay and waits until {at(until)}"


async def test_it_is_due_and_nobody_has_let_it_go(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, delay=60)
    due = await clock.now() + timedelta(seconds=60)
    await clock.advance(60)

    assert await first(db, execution_id) == ExplanationReason(
        why=ReasonCode.DUE,
        message=f"it is delayed; it was due at {at(due)} and no sweep has promoted it yet",
        remedy="a running worker sweeps every second: is one running? ff workers",
    )


async def test_what_is_not_due_lacks_a_worker_too(db: Connection) -> None:
    execution_id = await given.created(db, delay=60)

    assert await whys(db, execution_id) == [ReasonCode.NOT_DUE, ReasonCode.NO_WORKER]


HELD_BACK = {
    "waiting_for_budget": ("budget used up", "it goes on when there is room again"),
    "waiting_for_quota": ("quota used up", "it goes on when there is room again"),
    "waiting_for_capable_worker": (
        "held back until a capable worker is registered",
        "start a worker on lane 'default' that offers 'gpu'",
    ),
    "paused_by_operator": ("held back by alice", "unblock it: ff executions unblock '{}'"),
    "paused_by_policy": ("held back by policy", "the policy must be lifted where it was set"),
}
each_block = pytest.mark.parametrize("reason", HELD_BACK)


@each_block
async def test_it_is_held_back(db: Connection, reason: str) -> None:
    execution_id = await given.created(db, required_capabilities=("gpu",))
    await worker(db, capabilities=["gpu"])
    await block_execution_for_admission(db, execution_id, reason, actor="alice")
    message, remedy = HELD_BACK[reason]

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.BLOCKED, message=message, remedy=remedy.format(execution_id)
    )


@each_block
async def test_the_detail_of_a_block_is_told(db: Connection, reason: str) -> None:
    execution_id = await given.created(db)
    await block_execution_for_admission(
        db, execution_id, reason, detail="under review", actor="alice"
    )

    assert (await first(db, execution_id)).message == f"{HELD_BACK[reason][0]}: under review"


async def test_whoever_held_it_back_last_is_named(db: Connection) -> None:
    execution_id = await given.created(db)
    for actor in ("alice", "bob"):
        await block_execution_for_admission(db, execution_id, "paused_by_operator", actor=actor)
        if actor == "alice":
            await unblock_execution(db, execution_id, actor="carol")

    assert (await first(db, execution_id)).message == "held back by bob"


async def test_it_depends_on_others(db: Connection) -> None:
    execution_id = await given.created(db)
    await worker(db)
    await db.execute(
        "UPDATE ff.exec_core SET eligibility_state = 'blocked_by_dependencies',"
        " blocking_reason = 'waiting_for_children', blocking_detail = '2 of 3'"
    )

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.WAITS_FOR_UPSTREAMS,
        message="held for dependencies, and none is applied yet",
        remedy="apply its edges, or promote it",
    )


@pytest.mark.parametrize(
    ("reason", "what"),
    [
        ("waiting_for_signal", "signal"),
        ("waiting_for_approval", "approval"),
        ("waiting_for_callback", "callback"),
        ("waiting_for_tool_result", "tool result"),
    ],
)
async def test_it_is_suspended(db: Connection, reason: str, what: str) -> None:
    execution_id = await given.created(db)
    await db.execute(
        "UPDATE ff.exec_core SET lifecycle_phase = 'suspended', blocking_reason = $1,"
        " eligibility_state = 'not_applicable', attempt_state = 'attempt_interrupted',"
        " blocking_detail = 'order 7'",
        reason,
    )

    reason_told = await only(db, execution_id)

    assert reason_told.why is ReasonCode.SUSPENDED
    assert reason_told.message.startswith("suspended, waiting for ")
    assert reason_told.message.endswith(f" {what}: order 7")
    assert reason_told.remedy == f"deliver what it waits for ({what}), or cancel it"
