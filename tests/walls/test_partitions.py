"""The schema stays distributable (guarantees.md section 7): what spans partitions is named here."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.testing import TestServer
from tests.all_cases import all_cases
from tests.walls.partitions import HOT, conjuncts, touched, unkeyed_in_text
from tests.walls.sources import Constant, statements

pytestmark = pytest.mark.session("prepares statements and sets how its session plans")

GLOBAL = {
    "activity",
    "activity_place",
    "budget_usage_place",
    "bulk_action",
    "bulk_batch",
    "saved_query",
    "api_token",
    "lane_registry",
    "function_annotation",
    "migration_annotation",
    "role_annotation",
    "partition_config",
    "route",
    "sweeper",
    "waiter",
    "waitpoint_hmac",
    "web_session",
}
"""Small tables without partitions: rarely written, or (sweeper, waiter) of no use after a crash."""

# Calls with many objects. Each is one statement, which a sharded deployment runs per partition.
BATCHES = {
    "budgets.count_usage",
    "budgets.release_lost_races: what ended otherwise keeps what it has spent",
    "budgets.release_spend",
    "executions.locate_executions",
    "executions.look_at_waits",
    "executions.read_lease_expiries",
    "executions.read_namespaces",
    "quotas.unblock_keys_of",
    "executions.read_outcomes",
    "joins.cancel_siblings: cancelled upstreams are not listed any more",
    "joins.find_unneeded",
    "joins.resolve_edges",
    "joins.pending_cancels",
    "joins.queue_children",
    "joins.list_for_cancel",
    "flows.submission",
    "flows.lock_flows",
    "flows.read_flow_outcomes",
    "flows.unsettle_summaries",
    "joins.evaluate_joins",
    "joins.lock_joins: the edges, in one order",
    "joins.lock_joins: the upstreams that may end",
    "joins.lock_joins: what the members wait for, and what waits for them",
    "joins.member_joins",
    "joins.pass_again: results that members are given",
    "joins.reopen_edges: an upstream that runs again counts as running for what still waits for it",
    "joins.reset_joins: the counters, from the edges; nothing is cancelled for the joins",
    "joins.reset_joins: the edges",
    "joins.skipped_below",
    "joins.reset_joins: an upstream that was skipped again at once does not count for the others",
    "journal.begin_entry",
    "journal.kept_entries",
    "journal.read_journal",
    "journal.read_journal: the signals that no entry has consumed",
    "journal.record_entries",
    "journal.record_entries: in a transaction that sees one snapshot",
    "journal.rewind_journal",
    "journal.rewind_journal: calls that a compensation was started for are not armed any more",
    "journal.rewind_journal: the last entries that are left, and the marks",
    "journal.rewind_journal: the mark of the journal",
    "journal.rewind_journal: the waitpoints that the journals still have",
    "journal.rewind_journal: those that have a journal",
    "journal.skip_sleeps",
    "journal.wait_for_entries",
    "streams.append_frames",
    "streams.read_frames",
    "lifecycle.arm_compensations",
    "lifecycle.block",
    "lifecycle.cancel",
    "lifecycle.complete",
    "lifecycle.create_execution",
    "lifecycle.delay",
    "lifecycle.delay_and_record",
    "lifecycle.fail",
    "lifecycle.find_lost_leases",
    "lifecycle.pass_results",
    "lifecycle.pass_arguments",
    "lifecycle.pass_arguments: the results, and the inputs of targets that are runnable",
    "joins.pass_to_waiters: which results become one argument",
    "lifecycle.hold_dependents",
    "lifecycle.ensure_parent_flow",
    "lifecycle.expire_executions: those that are still past it, under their locks",
    "lifecycle.lock_and_read",
    "lifecycle.lock_executions",
    "lifecycle.lock_executions: of these namespaces only",
    "lifecycle.visible_executions",
    "lifecycle.lock_unique_keys",
    "lifecycle.lock_leases",
    "lifecycle.log_unknown_budgets",
    "lifecycle.operator_events",
    "lifecycle.progress",
    "lifecycle.read_seen",
    "lifecycle.promote_delayed",
    "lifecycle.promote_dependents",
    "lifecycle.release",
    "lifecycle.release_after_trouble",
    "lifecycle.renew",
    "lifecycle.reprioritise",
    "lifecycle.restart",
    "lifecycle.restart_attempt",
    "lifecycle.postpone",
    "lifecycle.revoke",
    "lifecycle.tag",
    "lifecycle.park_members",
    "lifecycle.terminalize",
    "flows.reconcile_cancels: flows whose members are all in use",
    "lifecycle.unblock",
    "lifecycle.wait_children",
    "operators.override: what the same override has ended",
    "operators.replay_execution: the flows, not locked yet",
    "lifecycle.escalate",
    "lifecycle.move_to_suspended",
    "lifecycle.number_signals",
    "lifecycle.reopen_waitpoints",
    "lifecycle.resume",
    "lifecycle.resume_waiting: the parents whose open suspension waits for one of these joins",
    "schedules.add_latest",
    "schedules.record_fires",
    "schedules.read_open_executions",
    "schedules.read_schedules",
    "schedules.release_queued",
    "schedules.release_queued: those of which none waits",
    "suspensions.read_inbox",
    "suspensions.record_signal_events",
    "suspensions.send_signals",
    "suspensions.send_signals: the executions under their locks, and what the same keys have sent",
    "suspensions.still_due: those that are past their timeout under their locks",
    "suspensions.store_suspensions",
    "suspensions.suspend: the executions under their locks",
    "suspensions.suspend: the joins that handlers would wait for, locked",
    "suspensions.suspend: the waitpoints that the requests name, or that were made for them before",
}
CLAIMS: Mapping[str, set[str]] = {
    "lifecycle.claim": {"claim_grant", "ready"},
    "grants.claim_for_worker": {"claim_grant+exec_core+ready", "ready"},
}
SWEEPS: Mapping[str, set[str]] = {
    "budgets.compact_budget_usage": {"budget_usage_history"},
    "budgets.prune_usage_keys": {"budget_usage_dedup"},
    "budgets.release_lost_races": {"budget_usage_by_exec"},
    "budgets.reset_budgets": {"budget_policy"},
    "budgets.reset_budgets: those in use, after a short wait": {"budget_policy"},
    "budgets.sample_budget_usage": {"budget_usage"},
    "budgets.unsettled_spends": {"budget_usage_by_exec"},
    "lifecycle.unblock_budgets": {"exec_core"},
    "events.prune_actions": {"operator_event"},
    "flows.cancel_backlog_due": {"cancel_backlog"},
    "joins.cancel_siblings: the joins that were listed first": {"edge_group+pending_cancel_groups"},
    "joins.dispatch_completions: as far as no other transaction has locked": {"completion_event"},
    "joins.dispatch_completions: which completions, with the joins that they concern": {
        "completion_event"
    },
    "flows.delete_empty_flows": {"flow_core"},
    "joins.pending_siblings": {"pending_cancel_groups"},
    "flows.project_unsettled": {"flow_summary"},
    "joins.redispatch_lost_completions": {"edge", "exec_core"},
    "flows.reconcile_cancels": {"cancel_backlog"},
    "joins.reconcile_siblings": {"edge_group+pending_cancel_groups"},
    "joins.undispatched": {"completion_event"},
    "journal.compensations_due": {"exec_core"},
    "journal.start_compensations": {"exec_core"},
    "lifecycle.delays_due": {"exec_core"},
    "lifecycle.end_parked_members": {"cancel_backlog_member+exec_core"},
    "lifecycle.expire_attempts": {"lease"},
    "lifecycle.expire_executions: those past their deadline, the longest overdue first": {
        "exec_core"
    },
    "grants.expire_grants": {"claim_grant"},
    "lifecycle.expire_leases": {"lease"},
    "lifecycle.expire_leases_of_dead": {"exec_core+lease", "worker_registry"},
    "retention.delete_finished": {"exec_core+flow_summary"},
    "lifecycle.past_deadline": {"exec_core"},
    "lifecycle.promote_due": {"exec_core"},
    "retention.trim_retention": {"exec_core+flow_summary"},
    "suspensions.expire_pending_waitpoints": {"waitpoint_pending"},
    "suspensions.expire_suspensions: those past their timeout, the longest overdue first": {
        "suspension_current"
    },
    "suspensions.suspensions_due": {"suspension_current"},
    "lifecycle.unblock_routes": {"exec_core", "worker_registry"},
    "workers.dead_workers_due": {"worker_registry"},
    "reconcile.find_due": {
        "budget_policy",
        "budget_usage_by_exec",
        "budget_usage_dedup",
        "budget_usage_history",
        "cancel_backlog",
        "claim_grant",
        "completion_event",
        "exec_core",
        "flow_core",
        "flow_summary",
        "lease",
        "operator_event",
        "pending_cancel_groups",
        "quota_key",
        "quota_wakeup",
        "schedule",
        "schedule_fire",
        "stream_meta",
        "suspension_current",
        "waitpoint_pending",
        "worker_registry",
        "worker_registry_event",
    },
    "activity.roll_up_activity: moves on": {"completion_event"},
    "schedules.fire_schedules: what is due": {"quota_policy", "schedule+schedule_fire"},
    "schedules.prune_schedule_fires": {"schedule+schedule_fire", "schedule_fire"},
    "schedules.release_queued: locks": {"schedule"},
    "schedules.schedules_due": {"schedule"},
    "schedules.turns_due": {"schedule"},
    "streams.expire_frames": {"stream_meta"},
    "workers.expire_workers": {"worker_registry"},
    "workers.prune_worker_events": {"worker_registry_event"},
    "workers.recover_dead_workers": {"exec_core+lease", "worker_registry"},
}
SEARCHES: Mapping[str, set[str]] = {
    "executions.count_matching: those that resume": {"exec_core+lease"},
    "executions.search_executions: those that resume": {"exec_body+exec_core+lease"},
    "executions.search_executions: those that resume, the oldest first": {
        "exec_body+exec_core+lease"
    },
    "executions.count_matching: those that had several attempts": {"exec_core"},
    "executions.search_executions: those that had several attempts": {"exec_body+exec_core"},
    "executions.search_executions: those that had several attempts, the oldest first": {
        "exec_body+exec_core"
    },
    "executions.count_by_state": {"exec_core", "exec_core+lease", "ready"},
    "executions.count_matching": {"exec_core"},
    "executions.count_matching: by tag": {"exec_core+exec_tag"},
    "executions.count_matching: ended without success in any route": {"exec_core"},
    "executions.search_executions: ended without success in any route": {"exec_body+exec_core"},
    "executions.search_executions: ended without success in any route, the oldest first": {
        "exec_body+exec_core"
    },
    "executions.count_matching: not as usual": {"exec_core"},
    "executions.count_matching: those that a worker holds": {"exec_core+lease"},
    "executions.count_matching: those that may take the branch of before a patch": {
        "exec_core+journal"
    },
    "executions.count_matching: those that succeeded": {"completion_event+exec_core"},
    "executions.count_matching: those that wait": {"exec_core", "exec_core+ready", "ready"},
    "executions.count_matching: those whose handlers made other calls than before": {"exec_core"},
    "executions.search_executions": {"exec_core"},
    "executions.search_executions: by tag": {"exec_body+exec_core+exec_tag"},
    "executions.search_executions: by tag, the oldest first": {"exec_body+exec_core+exec_tag"},
    "executions.search_executions: delayed, blocked, suspended, or ended without success": {
        "exec_body+exec_core",
        "exec_core",
    },
    "executions.search_executions: not as usual, the oldest first": {
        "exec_body+exec_core",
        "exec_core",
    },
    "executions.search_executions: the oldest first": {"exec_core"},
    "executions.search_executions: those in the queue, and those that are held back": {
        "exec_core",
        "exec_core+ready",
        "ready",
    },
    "executions.search_executions: those that a worker holds": {"exec_core+lease"},
    "executions.search_executions: those that a worker holds, the longest running first": {
        "exec_core+lease"
    },
    "executions.search_executions: those that a worker holds, the oldest first": {
        "exec_core+lease"
    },
    "executions.search_executions: those that may take the branch of before a patch": {
        "exec_body+exec_core+journal"
    },
    "executions.search_executions: those that succeeded": {"completion_event+exec_core"},
    "executions.search_executions: those that succeeded, the oldest first": {
        "completion_event+exec_core"
    },
    "executions.search_executions: those that wait, the oldest first": {
        "exec_core",
        "exec_core+ready",
        "ready",
    },
    "executions.search_executions: those whose handlers made other calls than before": {
        "exec_body+exec_core"
    },
}
READS: Mapping[str, set[str]] = {
    "activity.activity_due": {"completion_event"},
    "activity.roll_up_activity: counts": {"completion_event+exec_core"},
    "reconcile.find_free_role": {"worker_registry"},
    "executions.budget_reason": {"exec_core"},
    "budgets.list_budgets": {"budget_policy+budget_usage"},
    "budgets.list_held_back": {"exec_core"},
    "budgets.read_attached: what waits": {"ready"},
    "budgets.read_attached: what runs": {"exec_core+lease"},
    "budgets.list_own_spend": {"budget_usage_by_exec"},
    "lifecycle.delays_due": {"exec_core"},
    "db.doctor: rows that the sweeps should have moved": {"exec_core", "lease", "worker_registry"},
    "db.doctor: executions that are claimable, queued and leased in a combination that cannot be": {
        "exec_core",
        "exec_core+lease",
        "exec_core+ready",
        "lease",
        "ready",
    },
    "db.doctor: unfinished executions with values that no entry point accepts": {
        "exec_body+exec_core"
    },
    "events.newest_completion": {"completion_event"},
    "events.read_completions": {"completion_event"},
    "events.newest_lease_event": {"lease_event"},
    "events.read_lease_history": {"lease_event"},
    "events.newest_operator_event": {"operator_event"},
    "events.read_operator_events": {"operator_event"},
    "events.newest_signal_event": {"signal_event"},
    "events.read_signal_events": {"signal_event"},
    "executions.count_claimable": {"ready"},
    "executions.count_expiring_leases": {"exec_core+lease"},
    "executions.explain_execution": {"exec_core+lease", "ready", "worker_registry"},
    "executions.list_expired_leases": {"exec_core+lease"},
    **SEARCHES,
    "events.list_ended_leases": {"attempt+lease_event", "lease_event"},
    "executions.group_failures": {"exec_core"},
    "flows.list_flows": {"exec_core+flow_core+flow_summary"},
    "lanes.count_by_lane": {"exec_core", "exec_core+lease", "ready"},
    "lanes.read_gauges": {"cancel_backlog_member", "completion_event"},
    "lifecycle.read_claimed": {"exec_body+exec_core+lease"},
    "retention.count_trimmable": {"exec_core"},
    "flows.list_flows: of one namespace": {"exec_core+flow_core+flow_summary"},
    "schedules.diff_schedules": {"schedule"},
    "schedules.explain_schedule": {"quota_policy", "worker_registry"},
    "schedules.count_schedules": {"schedule"},
    "schedules.list_schedules": {"schedule"},
    "suspensions.count_waitpoints_by_kid": {"waitpoint_pending"},
    "suspensions.list_closed_waitpoints": {"exec_core+waitpoint_pending"},
    "suspensions.list_reviews": {"exec_core+suspension_current"},
    "suspensions.list_open_waitpoints": {"exec_core+waitpoint_pending"},
    "executions.unserved_routes": {"worker_registry"},
    "workers.find_unserved": {"worker_registry"},
    "workers.list_worker_events": {"worker_registry_event"},
    "workers.list_namespaces": {"worker_registry"},
    "workers.list_unserved_routes": {"exec_core", "ready", "worker_registry"},
    "workers.list_workers": {"lease", "worker_registry"},
}
# The executions of a key may be in any partition: a member is where its flow is. A sharded
# deployment that puts them with their key runs these per partition.
LIMITS: Mapping[str, set[str]] = {
    "executions.read_limit": {
        "exec_core",
        "lease",
        "quota_key+quota_window",
        "quota_policy",
        "ready",
    },
    "lifecycle.lock_for_claim": {"quota_policy"},
    "quotas.check_admission": {"lease", "quota_admitted"},
    "quotas.keys_due": {"quota_key", "quota_wakeup"},
    "quotas.list_busiest_keys": {
        "exec_core",
        "lease",
        "quota_key",
        "quota_key+quota_window",
        "quota_policy",
        "ready",
    },
    "quotas.list_quota_keys": {
        "exec_core",
        "lease",
        "quota_key+quota_window",
        "quota_policy",
        "ready",
    },
    "quotas.list_quota_policies": {"quota_policy"},
    "quotas.release_admission": {"quota_admitted"},
    "quotas.trim_quotas": {
        "exec_core",
        "lease",
        "quota_admitted",
        "quota_key",
        "quota_policy",
        "quota_window",
        "ready",
    },
    "quotas.unblock_due_keys": {"quota_wakeup"},
    "quotas.unblock_due_keys: keys without a row": {"quota_wakeup"},
    "quotas.unblock_due_keys: locks": {"quota_key", "quota_wakeup"},
    "quotas.unblock_held_keys": {"exec_core"},
    "quotas.update_quota_policy: its keys": {"quota_key"},
}
LIMITS_WRITING = {
    "quotas.release_admission",
    "quotas.trim_quotas",
    "quotas.unblock_due_keys",
    "quotas.update_quota_policy: its keys",
}
ACROSS = {**CLAIMS, **SWEEPS, **READS, **LIMITS}
"""What starts without a key, and where."""

ACROSS_IN_FUNCTIONS = {
    "best_queued": {"ready"},
    "claimable": {"claim_grant", "ready"},
    "budgets_queued": {"ready"},
    "claimable_in_budget": {"ready"},
    "hold_out_of_budget": {"ready"},
}
LIMITS_IN_FUNCTIONS = {
    "admit_by_key": {"quota_policy"},
    "claimable_limited": {"exec_core", "ready"},
    "create_execution": {"quota_policy"},
    "delete_executions": {"budget_usage_by_exec", "quota_admitted"},
    "note_quota_keys": {"exec_core", "lease", "ready"},
    "quota_room": {"lease", "quota_policy"},
    "submit": {"quota_policy"},
    "unblock_quota_keys": {"exec_core", "ready"},
}

# Keys that do not begin with the partition, and who looks across partitions through them.
OTHER_KEYS = {
    "budget_policy_reset": "budgets.reset_budgets",
    "budget_usage_by_exec_unsettled": "budgets.release_lost_races",
    "budget_usage_history_age": "budgets.compact_budget_usage",
    "budget_usage_dedup_expiry": "budgets.prune_usage_keys",
    "exec_core_out_of_budget": "lifecycle.unblock_budgets",
    "ready_budgets": "lifecycle.claim",
    "cancel_backlog_due": "flows.reconcile_cancels",
    "claim_grant_expiry": "grants.expire_grants",
    "completion_event_created": "executions.search_executions",
    "completion_event_pkey": "readers of the outbox: one contiguous order of ids",
    "completion_event_undispatched": "joins.dispatch_completions",
    "exec_core_created": "executions.search_executions, retention.delete_finished",
    "exec_core_deadline": "lifecycle.expire_executions",
    "exec_core_delayed": "lifecycle.promote_due",
    "exec_core_exceptional": "executions.search_executions, lifecycle.unblock_routes, "
    "lanes.count_by_lane",
    "exec_core_resumes": "executions.search_executions",
    "exec_core_retried": "executions.search_executions",
    "exec_core_uncompensated": "journal.start_compensations",
    "exec_core_unsuccessful": "executions.search_executions",
    "exec_core_waits_for_others": "joins.redispatch_lost_completions",
    "exec_tag_search": "executions.search_executions",
    "flow_core_empty": "flows.delete_empty_flows",
    "flow_summary_unsettled": "flows.project_unsettled",
    "lease_event_pkey": "readers of the outbox",
    "flow_core_created": "flows.list_flows",
    "flow_core_namespace": "flows.list_flows",
    "operator_event_age": "events.prune_actions",
    "operator_event_pkey": "readers of the outbox",
    "pending_cancel_groups_age": "joins.cancel_siblings",
    "exec_core_held_back": "ff.unblock_quota_keys: the best of a key, wherever it is",
    "lease_quota": "ff.quota_room: the slots of a key in use",
    "quota_admitted_expiry": "quotas.trim_quotas",
    "quota_admitted_key": "quotas.check_admission",
    "quota_key_next": "quotas.unblock_due_keys",
    "quota_key_policy": "quotas.list_quota_keys",
    "quota_policy_id": "ff.quota_room: few rows",
    "quota_policy_name": "quotas.list_quota_policies",
    "quota_policy_window": "quotas.trim_quotas: few rows",
    "quota_window_age": "quotas.trim_quotas",
    "ready_claim": "lifecycle.claim",
    "ready_quota": "lifecycle.claim, ff.unblock_quota_keys",
    "schedule_busy": "schedules.prune_schedule_fires",
    "schedule_due": "schedules.fire_schedules",
    "schedule_fire_age": "schedules.prune_schedule_fires",
    "schedule_list": "schedules.list_schedules",
    "schedule_queued": "schedules.release_queued",
    "signal_event_pkey": "readers of the outbox",
    "stream_meta_expiry": "streams.expire_frames",
    "suspension_current_timeout": "suspensions.expire_suspensions",
    "waitpoint_pending_closed": "suspensions.list_closed_waitpoints",
    "waitpoint_pending_expiry": "suspensions.expire_pending_waitpoints",
    "waitpoint_pending_open": "suspensions.list_open_waitpoints",
    "worker_registry_event_age": "workers.prune_worker_events",
}
# Nobody looks across partitions through these; an execution id says enough, and they stay narrow.
NARROW_KEYS = {
    "budget_usage_by_exec_execution",
    "edge_group_edges",
    "edge_group_waiter",
    "edge_pair",
    "lease_event_execution",
    "operator_event_execution",
    "quota_admitted_execution",
    "signal_dedup_execution",
    "signal_event_execution",
    "waitpoint_pending_execution",
}
OUTBOXES = {"completion_event", "lease_event", "operator_event", "signal_event"}

INDEXES = """
SELECT t.relname AS on_table, i.relname AS index, pg_get_indexdef(i.oid, 1, true) AS first,
       pg_get_indexdef(i.oid) ~ '\\mpartition_key\\M' AS has_key, x.indisunique AS is_unique
  FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
 WHERE t.relnamespace = 'ff'::regnamespace
"""
FUNCTIONS = """
SELECT proname, coalesce(nullif(prosrc, ''), pg_get_functiondef(oid)) AS body
  FROM pg_proc WHERE pronamespace = 'ff'::regnamespace
"""


def name_of(constant: Constant) -> str:
    return constant.text.strip().split("\n", 1)[0].removeprefix("-- ")


@pytest.fixture(scope="module")
async def db(ff_server: TestServer) -> AsyncGenerator[Connection]:
    """To a new database: what earlier tests left in the statistics of a table changes plans."""
    dsn = await ff_server.create()
    conn = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        yield conn
    finally:
        await conn.close()
        await ff_server.drop(dsn)


@pytest.fixture
async def hot(db: Connection) -> frozenset[str]:
    """The tables whose rows live in a partition."""
    return frozenset([row["relname"] for row in await db.fetch(HOT)])


# D2: statements.


async def test_every_statement_on_a_hot_table_carries_the_key_or_is_named(
    db: Connection, hot: frozenset[str]
) -> None:
    batches, across, planless = set[str](), dict[str, set[str]](), set[str]()
    for constant in statements():
        if constant.module.room == "testing":
            continue
        found = await touched(db, constant.text, hot)
        if found is None:
            planless.add(name_of(constant))
            continue
        starts = set(found.across)
        for function in re.findall(r"\bff\.(\w+)\(", constant.text):
            starts |= ACROSS_IN_FUNCTIONS.get(function, set())
        if starts:
            across[name_of(constant)] = starts
        elif found.many:
            batches.add(name_of(constant))

    assert across == ACROSS
    assert batches == BATCHES
    assert planless == {"keys.rotate_waitpoint_hmac_secret_all: one at a time"}


async def test_only_the_claim_looks_across_partitions_in_a_function(
    db: Connection, hot: frozenset[str]
) -> None:
    rows = await db.fetch(FUNCTIONS)
    found = {row["proname"]: unkeyed_in_text(row["body"], hot) for row in rows}

    assert {name: tables for name, tables in found.items() if tables} == {
        **ACROSS_IN_FUNCTIONS,
        **LIMITS_IN_FUNCTIONS,
    }
    assert len(found) > 10


def test_what_writes_across_partitions_is_the_claim_or_a_sweep() -> None:
    locking = re.compile(
        r"\bFOR (NO KEY )?UPDATE\b|\b(INSERT INTO|UPDATE|DELETE FROM) ff\."
        r"|\bff\.(claimable|reset_budgets)\w*\("
    )
    writing = {
        name_of(constant)
        for constant in statements()
        if name_of(constant) in ACROSS and locking.search(constant.text)
    }

    assert writing - LIMITS_WRITING == (set(CLAIMS) | set(SWEEPS)) - {
        "budgets.release_lost_races",
        "budgets.unsettled_spends",
        "flows.cancel_backlog_due",
        "joins.pending_siblings",
        "joins.undispatched",
        "journal.compensations_due",
        "workers.dead_workers_due",
        "lifecycle.delays_due",
        "lifecycle.expire_executions: those past their deadline, the longest overdue first",
        "lifecycle.past_deadline",
        "schedules.fire_schedules: what is due",
        "schedules.schedules_due",
        "schedules.turns_due",
        "suspensions.expire_suspensions: those past their timeout, the longest overdue first",
        "suspensions.suspensions_due",
    }


# D1: keys.


async def test_a_table_has_partitions_or_is_global(db: Connection, hot: frozenset[str]) -> None:
    rows = await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'ff'")
    types = await db.fetch(
        "SELECT DISTINCT atttypid::regtype::text AS type, attnotnull FROM pg_attribute"
        " WHERE attname = 'partition_key' AND attrelid IN"
        " (SELECT oid FROM pg_class WHERE relnamespace = 'ff'::regnamespace AND relkind = 'r')"
    )

    assert {row["tablename"] for row in rows} - hot == GLOBAL
    assert [tuple(row) for row in types] == [("smallint", True)]


async def test_every_key_begins_with_the_partition_or_is_named(
    db: Connection, hot: frozenset[str]
) -> None:
    rows = [row for row in await db.fetch(INDEXES) if row["on_table"] in hot]
    others = {row["index"] for row in rows if row["first"] != "partition_key"}

    assert others == set(OTHER_KEYS) | NARROW_KEYS
    assert {row["index"] for row in rows if row["is_unique"] and not row["has_key"]} == set()
    assert {row["on_table"] for row in rows if row["is_unique"]} == hot


# D3, D5: nothing is shared between partitions.


async def test_only_outboxes_count_across_partitions_and_nothing_refers_to_another_table(
    db: Connection,
) -> None:
    things = await db.fetch(
        "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = 'ff'::regnamespace"
        " AND relkind IN ('S', 'p', 'm', 'f')"
    )
    references = await db.fetch(
        "SELECT conname FROM pg_constraint WHERE contype = 'f'"
        " AND connamespace = 'ff'::regnamespace"
    )

    assert {(row["relname"], row["relkind"]) for row in things} == {
        *((f"{outbox}_event_id_seq", "S") for outbox in OUTBOXES),
        ("quota_wakeup_wakeup_id_seq", "S"),  # they tell rows apart, nothing more
        ("quota_window_start_no_seq", "S"),
    }
    assert references == []


# Can these tests see what they look for?

ONE = "ff.exec_core WHERE partition_key = %(partition_key)s AND execution_id = %(execution_id)s"
MANY = "unnest(%(p)s::smallint[], %(e)s::uuid[]) AS m (partition_key, execution_id)"


PLANNED: list[tuple[str, set[str], bool]] = [
    (f"SELECT * FROM {ONE}", set(), False),
    (f"SELECT * FROM {ONE}".replace("exec_core", "execution"), set(), False),
    ("SELECT * FROM ff.execution WHERE execution_id = %(e)s", {"exec_core"}, False),
    ("SELECT * FROM ff.exec_core WHERE execution_id = %(e)s", {"exec_core"}, False),
    (f"SELECT e.* FROM {MANY} JOIN ff.exec_core e USING (partition_key)", set(), True),
    (f"SELECT e.* FROM {MANY} JOIN ff.exec_core e USING (execution_id)", {"exec_core"}, True),
    (
        "SELECT b.payload FROM ff.exec_core e JOIN ff.exec_body b USING (partition_key,"
        " execution_id) WHERE e.route_id = %(route)s",
        {"exec_body+exec_core"},
        False,
    ),
    (
        "SELECT b.payload FROM ff.exec_core e JOIN ff.exec_body b USING (execution_id)"
        " WHERE e.partition_key = %(p)s AND e.execution_id = %(e)s",
        {"exec_body"},
        False,
    ),
    (
        "SELECT * FROM ff.exec_core e WHERE %(p)s::smallint IS NULL OR partition_key = %(p)s",
        {"exec_core"},
        False,
    ),
    (
        f"WITH found AS (SELECT * FROM {ONE}) UPDATE ff.exec_core e SET priority = 1 FROM found"
        " WHERE e.execution_id = found.execution_id",
        {"exec_core"},
        False,
    ),
    (
        "DELETE FROM ff.attempt a WHERE (a.partition_key, a.execution_id) IN"
        " (SELECT partition_key, execution_id FROM ff.exec_tag WHERE tag_key = 'a.b')",
        {"attempt+exec_tag"},
        False,
    ),
]


async def test_a_start_without_a_key_is_found(db: Connection, hot: frozenset[str]) -> None:
    for sql, across, many in PLANNED:
        found = await touched(db, sql, hot)

        assert found is not None, sql
        assert (found.across, found.many) == (across, many), sql


@all_cases(
    ("body", "tables"),
    [
        ("SELECT FROM ff.edge e WHERE (e.partition_key, e.flow_id) = (a, b);", set()),
        ("SELECT FROM ff.edge e WHERE e.flow_id = b;", {"edge"}),
        ("DELETE FROM ff.edge t USING x WHERE t.flow_id = x.flow_id;", {"edge"}),
        ("SELECT FROM x JOIN ff.attempt USING (partition_key, execution_id);", set()),
        ("SELECT FROM x JOIN ff.attempt a USING (execution_id);", {"attempt"}),
        ("UPDATE ff.edge e SET a = 1; SELECT 1 WHERE e.partition_key = 3;", {"edge"}),
        ("SELECT 'FROM ff.edge' FROM ff.route r;", set()),
    ],
)
def test_a_function_that_starts_without_a_key_is_found(body: str, tables: set[str]) -> None:
    assert unkeyed_in_text(body, frozenset({"edge", "attempt"})) == tables


def test_a_condition_is_taken_apart() -> None:
    assert conjuncts("((a = 1) AND ((b = ' AND ') OR (c = 2)) AND (d = 3))") == [
        "a = 1",
        "(b = ' AND ') OR (c = 2)",
        "d = 3",
    ]
