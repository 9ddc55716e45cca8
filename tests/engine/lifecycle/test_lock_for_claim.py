"""What bars a claim by name: the first obstacle is the one that is told."""

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.claim_execution import attempt_refusal
from flowfabric.engine.lifecycle.lock_for_claim import (
    LockedForClaim,
    capability_mismatch,
    claim_refusal,
    lock_for_claim,
)
from flowfabric.errors import ExecutionNotActive
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.policy import ExecutionPolicy
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.grants import granted

EXECUTION = ExecutionId.mint()
FREE = LockedForClaim(
    lifecycle_phase="runnable",
    ownership_state="unowned",
    eligibility_state="eligible_now",
    terminal_outcome="none",
    attempt_state="pending_first_attempt",
    public_state="waiting",
    attempt_index=0,
    lease_epoch=0,
    lease_reclaim_count=0,
    lease_expired=False,
    past_deadline=False,
    reclaim_cap=5,
    lane_id="default",
    lane_state="active",
    required_capabilities=[],
    now_ms=0,
)
# In the order of the checks; the schema lets none of the second and the fifth come about.
OBSTACLES = [
    ("execution_not_active", {"lifecycle_phase": "active"}),
    ("lease_conflict", {"ownership_state": "leased"}),
    ("execution_not_leaseable", {"eligibility_state": "blocked_by_quota"}),
    ("execution_not_leaseable", {"lane_state": "paused"}),
    ("active_attempt_exists", {"attempt_state": "running_attempt"}),
    ("use_claim_resumed_execution", {"attempt_state": "attempt_interrupted"}),
    ("execution_not_leaseable", {"attempt_index": 3}),
]


def test_what_is_free_may_be_claimed() -> None:
    assert claim_refusal(EXECUTION, FREE) is None
    assert attempt_refusal(EXECUTION, FREE, 0) is None


@all_cases("number", range(len(OBSTACLES)))
def test_of_several_obstacles_the_first_is_told(number: int) -> None:
    code, _ = OBSTACLES[number]
    facts: dict[str, object] = {}
    for _, more in reversed(OBSTACLES[number:]):
        facts |= more

    refusal = attempt_refusal(EXECUTION, msgspec.structs.replace(FREE, **facts), 0)

    assert refusal is not None
    assert refusal.code == code


@all_cases(("code", "facts"), OBSTACLES[:5])
def test_an_operator_meets_the_first_five(code: str, facts: dict[str, str]) -> None:
    refusal = claim_refusal(EXECUTION, msgspec.structs.replace(FREE, **facts))

    assert refusal is not None
    assert refusal.code == code


def test_what_ended_is_told_with_how_it_ended() -> None:
    ended = msgspec.structs.replace(
        FREE, lifecycle_phase="terminal", terminal_outcome="failed", lease_epoch=4, attempt_index=2
    )

    refusal = claim_refusal(EXECUTION, ended)

    assert isinstance(refusal, ExecutionNotActive)
    assert (refusal.lifecycle_phase, refusal.terminal_outcome) == ("terminal", "failed")
    assert (refusal.lease_epoch, refusal.attempt_id) == (4, attempt_id(EXECUTION, 2))


def test_what_a_worker_lacks_is_told_in_order() -> None:
    seen = msgspec.structs.replace(FREE, required_capabilities=["b", "c", "a"])

    lacking = capability_mismatch(seen, ["b"])

    assert lacking is not None
    assert lacking.detail == "a,c"
    assert capability_mismatch(seen, ["a", "b", "c", "d"]) is None


async def test_a_candidate_is_the_row_as_it_stands(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(max_reclaim_count=7)
    lease = await granted.lost(db, clock, policy=policy, required_capabilities=())
    await db.execute("UPDATE ff.exec_core SET lease_reclaim_count = -5")

    seen = await lock_for_claim(db, lease.execution_id)

    assert seen == msgspec.structs.replace(
        FREE,
        lifecycle_phase="active",
        ownership_state="leased",
        eligibility_state="not_applicable",
        attempt_state="running_attempt",
        public_state="active",
        lease_epoch=1,
        lease_expired=True,
        reclaim_cap=7,
        now_ms=await clock.now_ms(),
    )


async def test_a_lane_that_nobody_registered_is_active(db: Connection) -> None:
    execution_id = await given.created(db)
    await db.execute("DELETE FROM ff.lane_registry")

    seen = await lock_for_claim(db, execution_id)

    assert seen is not None
    assert seen.obstacle is None
    assert await lock_for_claim(db, ExecutionId.mint()) is None
