"""What operators do to executions and lanes, in the model."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flowfabric.engine.grants.issue_grant_and_claim import GrantedClaim
from flowfabric.engine.lanes.set_lane_state import LaneChanged
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.complete import Completed
from flowfabric.engine.lifecycle.delay import Delayed
from flowfabric.engine.lifecycle.fail import TerminalFailed
from flowfabric.engine.lifecycle.mark_lease_expired_if_due import (
    LeaseMarkedExpired,
    LeaseNotExpired,
    NotExpiredReason,
)
from flowfabric.engine.operators.block_execution_for_admission import Blocked
from flowfabric.engine.operators.change_priority import PriorityChanged
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked, LeaseRevoked, NotRevokedReason
from flowfabric.engine.operators.unblock_execution import Unblocked
from flowfabric.errors import (
    ExecutionNotActive,
    ExecutionNotEligible,
    ExecutionNotLeaseable,
    NotFound,
    StaleLease,
    ValidationError,
    invalid_input,
)
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.states import EligibilityState, LaneState
from tests.proofs.model import sweeps
from tests.proofs.model.moves import STARTING, lease
from tests.proofs.model.records import Execution, World

OPERATOR = "operator_override"
BLOCKS = {
    "waiting_for_budget": "blocked_by_budget",
    "waiting_for_quota": "blocked_by_quota",
    "waiting_for_capable_worker": "blocked_by_route",
    "paused_by_operator": "blocked_by_operator",
    "paused_by_policy": "blocked_by_lane_state",
}
LIFTED = {"blocked_by_budget", "blocked_by_quota", "blocked_by_route", "blocked_by_operator"}


def _found(world: World, execution_id: ExecutionId) -> Execution:
    if execution_id not in world.executions:
        raise NotFound("execution", execution_id)
    return world.executions[execution_id]


def _not_active(seen: Execution) -> ExecutionNotActive:
    return ExecutionNotActive(
        seen.execution_id,
        lifecycle_phase=seen.lifecycle_phase,
        terminal_outcome=seen.terminal_outcome,
        lease_epoch=seen.lease_epoch,
        attempt_id=attempt_id(seen.execution_id, seen.attempt_index),
    )


def cancel_execution(
    world: World,
    execution_id: ExecutionId,
    *,
    reason: str,
    source: str = OPERATOR,
    lease_epoch: int | None = None,
) -> Cancelled:
    seen = _found(world, execution_id)
    if seen.terminal_outcome == "cancelled":
        return Cancelled(execution_id=execution_id, repeated=True)
    if seen.lifecycle_phase == "terminal":
        raise ValidationError("invalid_input", "it has ended otherwise")
    if source != OPERATOR and seen.lifecycle_phase == "active":
        if lease_epoch is None:
            raise invalid_input("lease_epoch", lease_epoch, "must be given")
        if lease_epoch != seen.lease_epoch:
            raise StaleLease(execution_id, held=lease_epoch, current=seen.lease_epoch)
    world.terminalize([seen], "cancelled", reason=reason, by=source)
    return Cancelled(execution_id=execution_id)


def revoke_lease(
    world: World,
    execution_id: ExecutionId,
    *,
    worker_instance_id: str = "",
    expected_lease_id: UUID | str = "",
    expected_lease_epoch: int | None = None,
) -> LeaseRevoked | LeaseNotRevoked:
    seen = _found(world, execution_id)
    kept = None
    if seen.lifecycle_phase != "active":
        kept = NotRevokedReason.NO_ACTIVE_LEASE
    elif worker_instance_id not in ("", seen.worker_instance_id):
        kept = NotRevokedReason.DIFFERENT_WORKER_INSTANCE_ID
    elif expected_lease_id not in ("", seen.lease_id):
        kept = NotRevokedReason.LEASE_ID_MISMATCH
    elif expected_lease_epoch not in (None, seen.lease_epoch):
        kept = NotRevokedReason.EPOCH_MOVED
    if kept is not None:
        return LeaseNotRevoked(execution_id=execution_id, reason=kept)
    held, holder = seen.lease_id, seen.worker_instance_id
    assert held is not None
    assert holder is not None
    world.relinquish(seen, rotates=True, loses=True)
    return LeaseRevoked(
        execution_id=execution_id,
        lease_id=held,
        lease_epoch=seen.lease_epoch,
        worker_instance_id=holder,
    )


def override_complete(world: World, execution_id: ExecutionId, result: bytes) -> Completed:
    seen = _found(world, execution_id)
    if seen.overridden == "success":
        return Completed(execution_id=execution_id, repeated=True)
    if seen.lifecycle_phase != "active":
        raise _not_active(seen)
    world.terminalize([seen], "success")
    seen.result, seen.overridden = result, "success"
    return Completed(execution_id=execution_id)


def override_fail(world: World, execution_id: ExecutionId, reason: str) -> TerminalFailed:
    seen = _found(world, execution_id)
    if seen.overridden == "failed":
        return TerminalFailed(execution_id=execution_id, repeated=True)
    if seen.lifecycle_phase != "active":
        raise _not_active(seen)
    world.terminalize([seen], "failed", reason=reason, category=OPERATOR)
    seen.overridden = "failed"
    return TerminalFailed(execution_id=execution_id)


def override_delay(world: World, execution_id: ExecutionId, delay_ms: int) -> Delayed:
    seen = _found(world, execution_id)
    if seen.lifecycle_phase != "active":
        raise _not_active(seen)
    until = world.now_ms + delay_ms
    world.relinquish(seen, until_ms=until, waiting_for="waiting_for_delay", rotates=True)
    return Delayed(execution_id=execution_id)


def change_priority(world: World, execution_id: ExecutionId, priority: int) -> PriorityChanged:
    seen = _found(world, execution_id)
    if seen.eligibility_state != "eligible_now":
        raise ExecutionNotEligible(execution_id, seen.public_state)
    seen.priority = max(0, min(9000, priority))
    world.touch(seen)
    return PriorityChanged(execution_id=execution_id, priority=seen.priority)


def block_execution_for_admission(
    world: World, execution_id: ExecutionId, reason: str, *, detail: str | None
) -> Blocked:
    if reason not in BLOCKS:
        raise ValidationError("invalid_blocking_reason", reason)
    seen = _found(world, execution_id)
    if seen.lifecycle_phase == "terminal":
        raise _not_active(seen)
    if seen.eligibility_state != "eligible_now":
        raise ExecutionNotEligible(execution_id, seen.public_state)
    seen.waits(BLOCKS[reason], reason)
    seen.blocking_detail = detail
    world.touch(seen)
    state = EligibilityState(seen.eligibility_state)
    return Blocked(execution_id=execution_id, eligibility_state=state)


def unblock_execution(
    world: World, execution_id: ExecutionId, *, expected_blocking_reason: str | None
) -> Unblocked:
    seen = _found(world, execution_id)
    if (
        seen.eligibility_state not in LIFTED
        or seen.blocking_reason == "paused_by_flow_cancel"
        or expected_blocking_reason not in (None, seen.blocking_reason)
    ):
        raise ExecutionNotEligible(execution_id, seen.public_state)
    if seen.not_before_ms is None:
        seen.waits("eligible_now", "waiting_for_worker")
    else:
        seen.waits("blocked_by_dependencies", "waiting_for_children")
    seen.blocking_detail = None
    world.touch(seen)
    state = EligibilityState(seen.eligibility_state)
    return Unblocked(execution_id=execution_id, eligibility_state=state)


def issue_grant_and_claim(
    world: World, execution_id: ExecutionId, *, lane_id: str, ttl_ms: int, lease_id: UUID
) -> GrantedClaim:
    seen = _found(world, execution_id)
    if lane_id != seen.lane_id:
        raise invalid_input("lane_id", lane_id, "is not the execution's")
    if seen.lifecycle_phase != "runnable":
        raise _not_active(seen)
    starts = world.lanes[lane_id] in STARTING
    if seen.eligibility_state != "eligible_now" or not starts or seen.is_late(world.now_ms):
        raise ExecutionNotLeaseable(execution_id, "it cannot be claimed now")
    taken = lease(world, seen, "operator", "operator", ttl_ms=ttl_ms, lease_id=lease_id).lease
    return GrantedClaim(
        lease_id=lease_id, lease_epoch=taken.lease_epoch, attempt_index=taken.attempt_index
    )


def mark_lease_expired_if_due(world: World, execution_id: ExecutionId) -> Any:
    seen = world.executions.get(execution_id)
    why = None
    if seen is None:
        why = NotExpiredReason.EXECUTION_NOT_FOUND
    elif seen.lifecycle_phase != "active":
        why = NotExpiredReason.NOT_ACTIVE
    elif not sweeps.has_lapsed(world, seen):
        why = NotExpiredReason.NOT_YET_EXPIRED
    if why is not None or seen is None:
        return LeaseNotExpired(execution_id=execution_id, reason=NotExpiredReason(why))
    sweeps.lapse(world, seen)
    return LeaseMarkedExpired(execution_id=execution_id, public_state=seen.state)


def set_lane_state(world: World, lane_id: str, state: str) -> LaneChanged:
    if lane_id not in world.lanes:
        raise NotFound("lane", lane_id)
    old, world.lanes[lane_id] = world.lanes[lane_id], state
    return LaneChanged(lane_id=lane_id, lane_state=LaneState(state), old_state=LaneState(old))
