"""What happens without a caller, in the model: every sweep of the table by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.proofs.model import dispatch, flows, waits
from tests.proofs.model.moves import backoff_ms, retries_left, retry
from tests.proofs.model.records import Execution, World

DEFAULT_CAP = 5


def promote_due(world: World) -> int:
    due = [
        each
        for each in world.executions.values()
        if each.delay_until_ms is not None and each.delay_until_ms <= world.now_ms
    ]
    for each in due:
        each.waits("eligible_now", "waiting_for_worker")
        each.delay_until_ms = each.blocking_detail = None
        world.touch(each)
    return len(due)


def has_lapsed(world: World, each: Execution) -> bool:
    return each.lease_expires_at_ms is not None and each.lease_expires_at_ms <= world.now_ms


def lapse(world: World, each: Execution) -> None:
    """Row 22, or 25 once its leases were lost more often than its policy bears."""
    cap = DEFAULT_CAP if each.policy is None else each.policy.max_reclaim_count
    if each.lease_reclaim_count >= cap:
        why = "max_reclaims_exceeded"
        world.terminalize([each], "failed", reason=why, category="infra_crash", closes=False)
    else:
        world.relinquish(each, rotates=True, loses=True)


def expire_leases(world: World) -> int:
    return _each(
        [each for each in world.executions.values() if has_lapsed(world, each)],
        lambda each: lapse(world, each),
    )


def expire_attempts(world: World) -> int:
    overdue = [
        each
        for each in world.executions.values()
        if each.attempt_timeout_at_ms is not None and each.attempt_timeout_at_ms <= world.now_ms
    ]

    def end(each: Execution) -> None:
        if retries_left(each.policy, each.retry_count):
            wait = backoff_ms(each.policy, each.retry_count)
            retry(world, each, wait, "attempt_timeout", "timeout", rotates=True)
        else:
            why = "attempt_timeout"
            world.terminalize([each], "expired", reason=why, category="timeout", closes=False)

    return _each(overdue, end)


def expire_executions(world: World) -> int:
    overdue = [each for each in world.executions.values() if each.is_late(world.now_ms)]
    return world.terminalize(overdue, "expired", reason="execution_deadline", category="timeout")


def end_parked_members(world: World) -> int:
    parked = [
        each
        for each in world.executions.values()
        if each.blocking_reason == "paused_by_flow_cancel"
        and not world.is_owed_an_end(each.execution_id)
    ]
    for each in parked:
        flow = world.flow_of(each)
        reason = None if flow is None else flow.cancel_reason
        world.terminalize([each], "cancelled", reason=reason, by="cancel_flow", closes=False)
    return len(parked)


def _each(executions: Iterable[Execution], does: Callable[[Execution], object]) -> int:
    moved = list(executions)
    for each in moved:
        does(each)
    return len(moved)


def _nothing(_: World) -> int:
    return 0


SWEEPS: dict[str, Callable[[World], int]] = {
    "promote_due": promote_due,
    "expire_leases": expire_leases,
    "recover_dead_workers": _nothing,
    "expire_attempts": expire_attempts,
    "expire_executions": expire_executions,
    "expire_suspensions": waits.expire_suspensions,
    "redispatch_lost_completions": _nothing,
    "dispatch_completions": dispatch.carry_all,
    "cancel_siblings": dispatch.cancel_siblings,
    "reconcile_siblings": _nothing,
    "reconcile_cancels": flows.reconcile_cancels,
    "end_parked_members": end_parked_members,
    "fire_schedules": _nothing,
    "release_queued": _nothing,
    "unblock_due_keys": _nothing,
    "unblock_held_keys": _nothing,
    "trim_quotas": _nothing,
    "start_compensations": _nothing,
    "project_unsettled": flows.project_unsettled,
    "unblock_routes": _nothing,
    "reset_budgets": _nothing,
    "unblock_budgets": _nothing,
    "release_lost_races": _nothing,
    "expire_pending_waitpoints": waits.expire_pending_waitpoints,
    "expire_workers": _nothing,
    "expire_waiters": _nothing,
    "vacuum_queue": _nothing,
    "expire_grants": _nothing,
    "delete_finished": _nothing,
    "expire_frames": _nothing,
    "delete_empty_flows": _nothing,
    "prune_worker_events": _nothing,
    "prune_actions": _nothing,
    "prune_schedule_fires": _nothing,
    "prune_usage_keys": _nothing,
    "forget_sessions": _nothing,
    "roll_up_activity": _nothing,
    "run_bulk_actions": _nothing,
    "compact_activity": _nothing,
    "sample_budget_usage": _nothing,
    "compact_budget_usage": _nothing,
}
"""What each moves. No run is long enough for those that move nothing to find anything, no worker of
the model holds a lock whose loss `recover_dead_workers` could see, and the model has no schedules,
no streams, no limits and no budgets."""

UNCOUNTED = frozenset({"roll_up_activity"})
"""Counts ends for charts, as many as are settled, which transactions of other databases decide."""
