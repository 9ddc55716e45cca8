"""The words in CHECK constraints, domains and the view of executions are those of the enums."""

from __future__ import annotations

import inspect
import re
from enum import StrEnum

from flowfabric import states
from flowfabric.db.rows import Connection

ENUM_OF = {
    "exec_core.lifecycle_phase": states.LifecyclePhase,
    "exec_core.eligibility_state": states.EligibilityState,
    "exec_core.blocking_reason": states.BlockingReason,
    "exec_core.terminal_outcome": states.TerminalOutcome,
    "exec_core.attempt_state": states.AttemptState,
    "exec_core.attempt_type": states.AttemptType,
    "execution.lifecycle_phase": states.LifecyclePhase,
    "execution.ownership_state": states.OwnershipState,
    "execution.eligibility_state": states.EligibilityState,
    "execution.blocking_reason": states.BlockingReason,
    "execution.attempt_state": states.AttemptState,
    "execution.public_state": states.PublicState,
    "lease.attempt_type": states.AttemptType,
    "attempt.attempt_type": states.AttemptType,
    "attempt.outcome": states.AttemptOutcome,
    "completion_event.outcome": states.CompletionOutcome,
    "signal_event.effect": states.SignalEffect,
    "journal.kind": states.JournalKind,
    "journal.state": states.JournalState,
    "stream_frame.mode": states.FrameMode,
    "suspension_current.timeout_behavior": states.TimeoutBehavior,
    "suspension_current.reason_code": states.SuspensionReason,
    "suspension_current.requested_by": states.SuspensionRequester,
    "waitpoint_pending.state": states.WaitpointState,
    "lease_event.event_type": states.LeaseEventType,
    "lease_event.reason": states.LeaseEventReason,
    "lane_registry.lane_state": states.LaneState,
    "operator_event.event_type": states.OperatorEventType,
    "claim_grant.kind": states.GrantKind,
    "flow_core.public_flow_state": states.FlowState,
    "flow_core.cancellation_policy": states.CancellationPolicy,
    "flow_summary.public_flow_state": states.DerivedFlowState,
    "edge.edge_state": states.EdgeState,
    "edge.resolution": states.EdgeResolution,
    "edge.resolved_outcome": states.TerminalOutcome,
    "edge_group.policy_kind": states.GroupPolicyKind,
    "edge_group.on_satisfied": states.OnSatisfied,
    "edge_group.group_state": states.GroupState,
    "edge_group.waits_as": states.WaitsAs,
    "edge_group.cancel_siblings_reason": states.SiblingCancelReason,
    "budget_policy.enforcement_mode": states.EnforcementMode,
    "exec_idempotency.scope": states.KeyScope,
    "schedule.spec_kind": states.ScheduleSpecKind,
    "schedule.overlap": states.ScheduleOverlap,
    "schedule.state": states.ScheduleState,
    "schedule.source": states.ScheduleSource,
    "schedule_fire.outcome": states.ScheduleOutcome,
    "role_annotation.access": states.RoleAccess,
    "api_token.role": states.Role,
    "activity.outcome": states.CompletionOutcome,
    "bulk_action.action": states.BulkActionKind,
    "bulk_action.state": states.BulkState,
    "worker_registry_event.event_kind": states.WorkerEventKind,
}
# Words that the enum has and the column never holds. An execution is active by its row in ff.lease.
NEVER_STORED = {
    "edge.resolved_outcome": {"none"},
    "exec_core.lifecycle_phase": {"active"},
    "exec_core.attempt_state": {"running_attempt"},
    "activity.outcome": {"resumable"},
}
NOT_STORED = {
    states.Scope,
    states.FailureClass,
    states.FrameKind,
    states.FrameVisibility,
    states.PatchKind,
    states.StreamClosedReason,
}

WORDS = re.compile(r"CHECK \(\((\w+) = ANY \(ARRAY\[(.*)\]\)\)\)")
CHECKS = """
SELECT c.relname, n.conname, pg_get_constraintdef(n.oid) AS definition
  FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
 WHERE n.connamespace = 'ff'::regnamespace AND n.contype = 'c'
"""
DOMAIN = re.compile(r"CHECK \(\(VALUE = ANY \(ARRAY\[(.*)\]\)\)\)")
DOMAINS = """
SELECT c.relname, a.attname, pg_get_constraintdef(n.oid) AS definition
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  JOIN pg_constraint n ON n.contypid = a.atttypid
 WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
"""
VIEW = "SELECT pg_get_viewdef('ff.execution'::regclass)"
CHOICE = re.compile(r"\bCASE\b((?:(?!\bCASE\b).)*)\bEND AS (\w+)", re.DOTALL)


async def words_in(db: Connection) -> dict[str, set[str]]:
    """The words that each column may hold; in the view those that depend on the lease."""
    found: dict[str, set[str]] = {}
    for row in await db.fetch(CHECKS):
        listed = WORDS.fullmatch(row["definition"])
        if listed is not None:
            assert row["conname"] == f"{row['relname']}_{listed[1]}"
            found[f"{row['relname']}.{listed[1]}"] = set(re.findall(r"'(\w+)'::text", listed[2]))
    for row in await db.fetch(DOMAINS):
        listed = DOMAIN.fullmatch(row["definition"])
        assert listed is not None
        found[f"{row['relname']}.{row['attname']}"] = set(re.findall(r"'(\w+)'::text", listed[1]))
    for choice, column in CHOICE.findall(await db.fetchval(VIEW)):
        words = set(re.findall(r"\b(?:THEN|ELSE) '(\w+)'::text", choice))
        for stored in re.findall(r"\b(?:THEN|ELSE) \(?e\.(\w+)", choice):
            other = re.findall(rf"\be\.{stored}\)?::text (?:=|<>) '(\w+)'::text", choice)
            words |= found.get(f"exec_core.{stored}", set()) - set(other)
        if words:
            found[f"execution.{column}"] = words
    return found


async def test_every_column_of_words_has_the_words_of_its_enum(db: Connection) -> None:
    assert await words_in(db) == {
        column: {word.value for word in enum} - NEVER_STORED.get(column, set())
        for column, enum in ENUM_OF.items()
    }


def test_every_enum_is_the_alphabet_of_a_column() -> None:
    ours = {
        member
        for _, member in inspect.getmembers(states, inspect.isclass)
        if issubclass(member, StrEnum) and member is not StrEnum
    }

    assert ours == set(ENUM_OF.values()) | NOT_STORED


async def test_a_column_that_loses_its_check_is_noticed(db: Connection) -> None:
    before = await words_in(db)
    await db.execute("ALTER DOMAIN ff.lease_event_reason DROP CONSTRAINT lease_event_reason")
    await db.execute("ALTER TABLE ff.signal_event DROP CONSTRAINT signal_event_effect")

    lost = before.keys() - (await words_in(db)).keys()
    assert lost == {"lease_event.reason", "signal_event.effect"}
