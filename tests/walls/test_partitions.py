"""The schema stays distributable (guarantees.md section 7): what spans partitions is named here."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from flowfabric.db.rows import Connection
from tests.walls.partitions import HOT, conjuncts, touched, unkeyed_in_text
from tests.walls.sources import Constant, statements

pytestmark = pytest.mark.session("prepares statements and sets how its session plans")

GLOBAL = {
    "lane_registry",
    "function_annotation",
    "migration_annotation",
    "role_annotation",
    "partition_config",
    "route",
    "waiter",
    "waitpoint_hmac",
}
"""Small tables without partitions: written rarely, or (waiters) worth nothing after a crash."""

# Calls with many objects. Each is one statement, which a sharded deployment runs per partition.
BATCHES = {
    "executions.locate_executions",
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
    "lifecycle.block",
    "lifecycle.cancel",
    "lifecycle.complete",
    "lifecycle.create_execution",
    "lifecycle.delay",
    "lifecycle.fail",
    "lifecycle.find_lost_leases",
    "lifecycle.pass_results",
    "lifecycle.pass_arguments",
    "lifecycle.pass_arguments: the results, and the inputs of targets that are runnable",
    "joins.pass_to_waiters: which results become one argument",
    "lifecycle.hold_dependents",
    "lifecycle.ensure_parent_flow",
    "lifecycle.lock_and_read",
    "lifecycle.lock_executions",
    "lifecycle.operator_events",
    "lifecycle.progress",
    "lifecycle.promote_dependents",
    "lifecycle.release",
    "lifecycle.release_after_trouble",
    "lifecycle.renew",
    "lifecycle.reprioritise",
    "lifecycle.restart",
    "lifecycle.postpone",
    "lifecycle.revoke",
    "lifecycle.tag",
    "lifecycle.park_members",
    "lifecycle.terminalize",
    "lifecycle.terminalize: passing over rows in use",
    "flows.reconcile_cancels: flows whose members are all in use",
    "lifecycle.unblock",
    "lifecycle.wait_children",
    "operators.override: what the same override has ended",
    "operators.replay_execution: the flows, not locked yet",
}
CLAIMS: Mapping[str, set[str]] = {
    "lifecycle.claim": {"claim_grant", "exec_core"},
    "grants.claim_for_worker": {"claim_grant", "exec_core"},
}
SWEEPS: Mapping[str, set[str]] = {
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
    "joins.redispatch_lost_completions": {"exec_core"},
    "flows.reconcile_cancels": {"cancel_backlog"},
    "joins.reconcile_siblings": {"edge_group+pending_cancel_groups"},
    "joins.undispatched": {"completion_event"},
    "lifecycle.end_parked_members": {"cancel_backlog_member+exec_core"},
    "lifecycle.expire_attempts": {"exec_core"},
    "lifecycle.expire_executions": {"exec_core"},
    "grants.expire_grants": {"claim_grant"},
    "lifecycle.expire_leases": {"exec_core"},
    "retention.delete_finished": {"exec_core+flow_summary"},
    "lifecycle.promote_due": {"exec_core"},
    "retention.trim_retention": {"exec_core+flow_summary"},
    "lifecycle.unblock_routes": {"exec_core", "worker_registry"},
    "workers.expire_workers": {"worker_registry"},
    "workers.prune_worker_events": {"worker_registry_event"},
}
READS: Mapping[str, set[str]] = {
    "db.doctor: rows that the sweeps should have moved": {"exec_core"},
    "db.doctor: unfinished executions with values that no entry point accepts": {
        "exec_body+exec_core"
    },
    "events.newest_completion": {"completion_event"},
    "events.read_completions": {"completion_event"},
    "events.newest_lease_event": {"lease_event"},
    "events.read_lease_history": {"lease_event"},
    "events.newest_operator_event": {"operator_event"},
    "events.read_operator_events": {"operator_event"},
    "executions.count_expiring_leases": {"exec_core"},
    "executions.explain_execution": {"exec_core", "worker_registry"},
    "executions.list_expired_leases": {"exec_core"},
    "executions.search_executions": {"exec_body+exec_core"},
    "executions.search_executions: by an outcome other than success": {"exec_core"},
    "executions.search_executions: by tag": {"exec_core+exec_tag"},
    "flows.list_flows": {"exec_core+flow_core+flow_summary"},
    "lanes.count_by_lane": {"exec_core"},
    "lifecycle.read_claimed": {"exec_body+exec_core"},
    "retention.count_trimmable": {"exec_core+flow_summary"},
    "workers.find_unserved": {"worker_registry"},
    "workers.list_worker_events": {"worker_registry_event"},
    "workers.list_workers": {"worker_registry"},
}
ACROSS = {**CLAIMS, **SWEEPS, **READS}
"""What starts without a key, and where."""

ACROSS_IN_FUNCTIONS = {"claimable": {"claim_grant", "exec_core"}}

# Keys that do not begin with the partition, and who looks across partitions through them.
OTHER_KEYS = {
    "cancel_backlog_due": "flows.reconcile_cancels",
    "claim_grant_expiry": "grants.expire_grants",
    "completion_event_pkey": "readers of the outbox: one contiguous order of ids",
    "completion_event_undispatched": "joins.dispatch_completions",
    "exec_body_created": "executions.search_executions",
    "exec_core_attempt_timeout": "lifecycle.expire_attempts",
    "exec_core_claim": "lifecycle.claim",
    "exec_core_deadline": "lifecycle.expire_executions",
    "exec_core_delayed": "lifecycle.promote_due",
    "exec_core_finished": "retention.delete_finished",
    "exec_core_held_back": "lifecycle.unblock_routes, lanes.count_by_lane",
    "exec_core_leased": "lifecycle.expire_leases, lifecycle.read_claimed, "
    "executions.count_expiring_leases",
    "exec_core_not_success": "executions.search_executions",
    "exec_core_waits_for_others": "joins.redispatch_lost_completions",
    "exec_tag_search": "executions.search_executions",
    "flow_core_empty": "flows.delete_empty_flows",
    "flow_summary_unsettled": "flows.project_unsettled",
    "lease_event_pkey": "readers of the outbox",
    "operator_event_age": "events.prune_actions",
    "operator_event_pkey": "readers of the outbox",
    "pending_cancel_groups_age": "joins.cancel_siblings",
    "worker_registry_event_age": "workers.prune_worker_events",
}
# Nobody looks across partitions through these; an execution id says enough, and they stay narrow.
NARROW_KEYS = {"completion_event_execution", "lease_event_execution", "operator_event_execution"}
OUTBOXES = {"completion_event", "lease_event", "operator_event"}

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

    assert {name: tables for name, tables in found.items() if tables} == ACROSS_IN_FUNCTIONS
    assert len(found) > 10


def test_what_writes_across_partitions_is_the_claim_or_a_sweep() -> None:
    locking = re.compile(
        r"\bFOR (NO KEY )?UPDATE\b|\b(INSERT INTO|UPDATE|DELETE FROM) ff\.|\bff\.claimable\("
    )
    writing = {
        name_of(constant)
        for constant in statements()
        if name_of(constant) in ACROSS and locking.search(constant.text)
    }

    assert writing == (set(CLAIMS) | set(SWEEPS)) - {
        "flows.cancel_backlog_due",
        "joins.pending_siblings",
        "joins.undispatched",
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
        (f"{outbox}_event_id_seq", "S") for outbox in OUTBOXES
    }
    assert references == []


# Can these tests see what they look for?

ONE = "ff.exec_core WHERE partition_key = %(partition_key)s AND execution_id = %(execution_id)s"
MANY = "unnest(%(p)s::smallint[], %(e)s::uuid[]) AS m (partition_key, execution_id)"


PLANNED: list[tuple[str, set[str], bool]] = [
    (f"SELECT * FROM {ONE}", set(), False),
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


@pytest.mark.parametrize(
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
