"""The table of sweeps, and how often each of them runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from flowfabric.db.expire_waiters import expire_waiters
from flowfabric.db.rows import Connection
from flowfabric.db.vacuum_queue import vacuum_queue
from flowfabric.engine.access.forget_sessions import forget_sessions
from flowfabric.engine.activity.compact_activity import activity_old, compact_activity
from flowfabric.engine.activity.roll_up_activity import activity_due, roll_up_activity
from flowfabric.engine.budgets.compact_budget_usage import compact_budget_usage
from flowfabric.engine.budgets.prune_usage_keys import prune_usage_keys
from flowfabric.engine.budgets.release_lost_races import release_lost_races, unsettled_spends
from flowfabric.engine.budgets.reset_budgets import reset_budgets
from flowfabric.engine.budgets.sample_budget_usage import sample_budget_usage
from flowfabric.engine.bulk.run_bulk_actions import bulk_due, run_bulk_actions
from flowfabric.engine.events.prune_actions import prune_actions
from flowfabric.engine.flows.delete_empty_flows import delete_empty_flows
from flowfabric.engine.flows.project_unsettled import project_unsettled
from flowfabric.engine.flows.reconcile_cancels import cancel_backlog_due, reconcile_cancels
from flowfabric.engine.grants.expire_grants import expire_grants
from flowfabric.engine.joins.cancel_siblings import cancel_siblings, pending_siblings
from flowfabric.engine.joins.dispatch_completions import dispatch_completions, undispatched
from flowfabric.engine.joins.reconcile_siblings import reconcile_siblings
from flowfabric.engine.joins.redispatch_lost_completions import redispatch_lost_completions
from flowfabric.engine.journal.start_compensations import compensations_due, start_compensations
from flowfabric.engine.lifecycle.end_parked_members import end_parked_members
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_executions import expire_executions, past_deadline
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.unblock_budgets import unblock_budgets
from flowfabric.engine.lifecycle.unblock_routes import unblock_routes
from flowfabric.engine.quotas.trim_quotas import trim_quotas
from flowfabric.engine.quotas.unblock_due_keys import keys_due, unblock_due_keys
from flowfabric.engine.quotas.unblock_held_keys import unblock_held_keys
from flowfabric.engine.retention.delete_finished import delete_finished
from flowfabric.engine.schedules.fire_schedules import fire_schedules, schedules_due
from flowfabric.engine.schedules.prune_schedule_fires import prune_schedule_fires
from flowfabric.engine.schedules.release_queued import release_queued, turns_due
from flowfabric.engine.streams.expire_frames import expire_frames
from flowfabric.engine.suspensions.expire_pending_waitpoints import expire_pending_waitpoints
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions, suspensions_due
from flowfabric.engine.workers.expire_workers import expire_workers
from flowfabric.engine.workers.prune_worker_events import prune_worker_events
from flowfabric.engine.workers.recover_dead_workers import dead_workers_due, recover_dead_workers

Step = Callable[[Connection, int], Awaitable[int]]
Check = Callable[[Connection], Awaitable[bool]]


class Sweep(msgspec.Struct, frozen=True):
    """One sweep: every `every` seconds, `step` moves due rows, at most `batch` at a time."""

    step: Step
    every: float
    batch: int = 500
    check: Check | None = None
    """Are there due rows? Asked first where `step` needs a transaction."""

    @property
    def name(self) -> str:
        return getattr(self.step, "__name__", "sweep")


SWEEPS: Final = (
    Sweep(promote_due, every=1.0),
    Sweep(expire_leases, every=1.0),
    Sweep(recover_dead_workers, every=0.8, check=dead_workers_due),
    Sweep(expire_attempts, every=2.0),
    Sweep(expire_executions, every=2.0, check=past_deadline),
    Sweep(expire_suspensions, every=0.8, check=suspensions_due),
    Sweep(redispatch_lost_completions, every=15.0, batch=50),
    Sweep(dispatch_completions, every=1.0, batch=256, check=undispatched),
    Sweep(cancel_siblings, every=1.0, batch=50, check=pending_siblings),
    Sweep(reconcile_siblings, every=10.0, batch=50),
    Sweep(reconcile_cancels, every=15.0, batch=50, check=cancel_backlog_due),
    Sweep(end_parked_members, every=5.0),
    Sweep(fire_schedules, every=0.8, check=schedules_due),
    Sweep(release_queued, every=0.8, check=turns_due),
    Sweep(unblock_due_keys, every=0.8, check=keys_due),
    Sweep(unblock_held_keys, every=5.0, batch=200),
    Sweep(trim_quotas, every=30.0),
    Sweep(start_compensations, every=2.0, batch=100, check=compensations_due),
    Sweep(run_bulk_actions, every=1.0, check=bulk_due),
    Sweep(project_unsettled, every=15.0, batch=200),
    Sweep(unblock_routes, every=5.0),
    Sweep(reset_budgets, every=15.0, batch=20),
    Sweep(unblock_budgets, every=5.0),
    Sweep(release_lost_races, every=2.0, check=unsettled_spends),
    Sweep(expire_pending_waitpoints, every=5.0, batch=100),
    Sweep(expire_workers, every=30.0),
    Sweep(expire_waiters, every=60.0),
    Sweep(vacuum_queue, every=1.0),
    Sweep(expire_grants, every=30.0),
    Sweep(delete_finished, every=20.0),
    Sweep(expire_frames, every=60.0),
    Sweep(delete_empty_flows, every=3600.0),
    Sweep(prune_worker_events, every=3600.0),
    Sweep(prune_actions, every=3600.0),
    Sweep(prune_schedule_fires, every=3600.0),
    Sweep(prune_usage_keys, every=3600.0),
    Sweep(forget_sessions, every=3600.0),
    Sweep(roll_up_activity, every=10.0, check=activity_due),
    Sweep(compact_activity, every=600.0, batch=2000, check=activity_old),
    Sweep(sample_budget_usage, every=60.0, batch=5000),
    Sweep(compact_budget_usage, every=600.0, batch=2000),
)
