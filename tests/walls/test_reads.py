"""Which tables a package reads that it does not own: a list that a reviewer sees change."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.walls.sources import bare, constants
from tests.walls.test_statements import OWNER

_TABLE = re.compile(r"\bff\.([a-z_]+)\b(?!\s*\()")

READS = {
    "activity": {"ff.completion_event", "ff.exec_core", "ff.route"},
    "budgets": {
        "ff.edge",
        "ff.edge_group",
        "ff.exec_core",
        "ff.execution",
        "ff.lease",
        "ff.ready",
        "ff.route",
    },
    "events": {
        "ff.attempt",
        "ff.completion_event",
        "ff.exec_body",
        "ff.exec_core",
        "ff.lease_event",
        "ff.route",
        "ff.signal_event",
    },
    "executions": {
        "ff.attempt",
        "ff.completion_event",
        "ff.edge",
        "ff.edge_group",
        "ff.exec_body",
        "ff.exec_core",
        "ff.exec_idempotency",
        "ff.exec_tag",
        "ff.execution",
        "ff.journal",
        "ff.lane_registry",
        "ff.lease",
        "ff.operator_event",
        "ff.quota_key",
        "ff.quota_policy",
        "ff.quota_window",
        "ff.ready",
        "ff.route",
        "ff.signal_inbox",
        "ff.suspension_current",
        "ff.unused_grant",
        "ff.waitpoint_pending",
        "ff.worker_registry",
    },
    "flows": {
        "ff.edge",
        "ff.edge_group",
        "ff.exec_body",
        "ff.exec_core",
        "ff.execution",
        "ff.route",
    },
    "grants": {"ff.attempt", "ff.exec_core", "ff.ready", "ff.unused_grant"},
    "joins": {
        "ff.attempt",
        "ff.cancel_backlog_member",
        "ff.completion_event",
        "ff.exec_body",
        "ff.exec_core",
        "ff.execution",
        "ff.flow_core",
        "ff.route",
    },
    "journal": {
        "ff.exec_core",
        "ff.lane_registry",
        "ff.lease",
        "ff.route",
        "ff.signal_inbox",
    },
    "lanes": {
        "ff.cancel_backlog_member",
        "ff.completion_event",
        "ff.exec_core",
        "ff.lease",
        "ff.ready",
        "ff.route",
    },
    "lifecycle": {
        "ff.cancel_backlog_member",
        "ff.claim_grant",
        "ff.edge_group",
        "ff.execution",
        "ff.flow_core",
        "ff.journal",
        "ff.lane_registry",
        "ff.operator_event",
        "ff.signal_dedup",
        "ff.quota_policy",
        "ff.suspension_current",
        "ff.waitpoint_pending",
        "ff.worker_liveness",
        "ff.worker_registry",
    },
    "operators": {
        "ff.edge",
        "ff.edge_group",
        "ff.exec_body",
        "ff.execution",
        "ff.flow_core",
        "ff.lane_registry",
        "ff.operator_event",
        "ff.route",
    },
    "quotas": {"ff.exec_core", "ff.lease", "ff.ready"},
    "retention": {"ff.exec_core", "ff.lane_registry", "ff.route", "ff.settled_flow"},
    "schedules": {
        "ff.exec_core",
        "ff.lane_registry",
        "ff.partition_config",
        "ff.quota_policy",
        "ff.sweeper",
        "ff.worker_registry",
    },
    "streams": {"ff.attempt", "ff.execution", "ff.suspension_current"},
    "suspensions": {
        "ff.edge_group",
        "ff.exec_body",
        "ff.exec_core",
        "ff.execution",
        "ff.journal",
        "ff.route",
    },
    "workers": {"ff.exec_core", "ff.lease", "ff.ready", "ff.route", "ff.worker_liveness"},
}


def tables_of(sql: str) -> set[str]:
    """The tables and views that a statement names, also where it writes them."""
    return {f"ff.{name}" for name in _TABLE.findall(bare(sql))}


def test_a_package_reads_only_the_foreign_tables_that_are_listed() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for constant in constants():
        package = constant.module.room
        if constant.is_literal and ".engine." in constant.module.name:
            found[package] |= {
                table for table in tables_of(constant.text) if OWNER.get(table) != package
            }

    assert {package: tables for package, tables in found.items() if tables} == READS


def test_a_function_is_no_table() -> None:
    assert tables_of("SELECT ff.now_ms() FROM ff.route r JOIN ff.attempt USING (x)") == {
        "ff.route",
        "ff.attempt",
    }
