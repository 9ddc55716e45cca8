"""What `flowfabric.engine` offers, imported when the first of these names is used."""

from flowfabric.config import DatabaseConfig, PartitionConfig
from flowfabric.engine.access.create_token import TokenCreated
from flowfabric.engine.access.find_token import StoredToken
from flowfabric.engine.access.list_sessions import OpenSession
from flowfabric.engine.access.list_tokens import ApiToken
from flowfabric.engine.access.open_session import SessionOpened
from flowfabric.engine.access.read_session import WebSession
from flowfabric.engine.access.revoke_token import TokenRevoked
from flowfabric.engine.activity.read_activity import Activity, ActivityStep
from flowfabric.engine.budgets.create_budget import BudgetAlreadySatisfied, BudgetCreated
from flowfabric.engine.budgets.list_budgets import BudgetPage
from flowfabric.engine.budgets.list_held_back import HeldBack, HeldBackPage
from flowfabric.engine.budgets.list_own_spend import OwnSpend
from flowfabric.engine.budgets.list_spend import Spend
from flowfabric.engine.budgets.read_attached import Attached, AttachedExecution
from flowfabric.engine.budgets.read_budget_history import BudgetHistory
from flowfabric.engine.budgets.read_budget_usage_and_limits import BudgetUsageAndLimits
from flowfabric.engine.budgets.release_budget import BudgetReleased
from flowfabric.engine.budgets.reset_budget import BudgetReset
from flowfabric.engine.budgets.status import BudgetStatus
from flowfabric.engine.budgets.update_budget_limits import BudgetLimitsChanged
from flowfabric.engine.budgets.usage import (
    HardBreach,
    SoftBreach,
    UsageAlreadyApplied,
    UsageCounted,
    UsageOutcome,
)
from flowfabric.engine.bulk.action import BulkArguments
from flowfabric.engine.bulk.list_bulk_targets import BulkTarget, BulkTargetPage
from flowfabric.engine.bulk.preview_bulk_action import BulkPreview
from flowfabric.engine.bulk.read_bulk_action import BulkAction
from flowfabric.engine.engine import Engine
from flowfabric.engine.events.completion_events import CompletionEvent
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LeaseEvent
from flowfabric.engine.events.list_ended_leases import EndedLease
from flowfabric.engine.events.list_events import EventPage
from flowfabric.engine.events.list_events_of import MergedEvents
from flowfabric.engine.events.operator_events import OperatorEvent
from flowfabric.engine.events.read_history import HistoryEntry, HistoryPage
from flowfabric.engine.events.signal_events import SignalEvent
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.engine.executions.count_by_state import LaneStates
from flowfabric.engine.executions.count_expiring_leases import ExpiringLeases
from flowfabric.engine.executions.count_matching import MatchCount
from flowfabric.engine.executions.describe_execution import (
    CurrentAttempt,
    CurrentLease,
    CurrentSuspension,
    ExecutionBody,
    ExecutionSnapshot,
)
from flowfabric.engine.executions.explanation import Explanation, ExplanationReason, ReasonCode
from flowfabric.engine.executions.group_failures import FailureGroup, FailureGroups
from flowfabric.engine.executions.list_attempts import Attempt
from flowfabric.engine.executions.list_executions import ExecutionPage
from flowfabric.engine.executions.list_expired_leases import (
    ExpiredLease,
    ExpiredLeaseCursor,
    ExpiredLeasePage,
)
from flowfabric.engine.executions.look_at_waits import WaitsSeen
from flowfabric.engine.executions.read_execution_context import ExecutionContext
from flowfabric.engine.executions.read_execution_info import ExecutionInfo, StateVector
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.engine.executions.read_policy import AppliedPolicy
from flowfabric.engine.executions.search_executions import FoundExecution, Search, SearchPage
from flowfabric.engine.flows.add_execution_to_flow import AlreadyMember, MemberAdded
from flowfabric.engine.flows.cancel_flow_header import FlowAlreadyCancelled, FlowCancelAccepted
from flowfabric.engine.flows.create_flow import FlowCreated, FlowExists
from flowfabric.engine.flows.describe_flow import EdgeGroupSnapshot, FlowSnapshot, MemberCounts
from flowfabric.engine.flows.edge import EdgeSnapshot
from flowfabric.engine.flows.list_flow_members import FlowMember, MemberPage
from flowfabric.engine.flows.list_flows import FlowPage, FlowStatus, FlowSummary
from flowfabric.engine.flows.new_flow import NewEdge, NewFlow
from flowfabric.engine.flows.read_flow_states import FlowStates
from flowfabric.engine.flows.submission import FlowSubmitted
from flowfabric.engine.grants.grant import ClaimGrant, ReclaimGrant
from flowfabric.engine.grants.issue_grant_and_claim import GrantedClaim
from flowfabric.engine.grants.reclaim_execution import GrantNotFound
from flowfabric.engine.grants.reclaimable import NotReclaimable, ReclaimCapExceeded
from flowfabric.engine.grants.stored_grant import GrantArguments
from flowfabric.engine.grants.verify_grant import VerifiedGrant
from flowfabric.engine.joins.apply_dependency_to_child import EdgeAlreadyApplied, EdgeApplied
from flowfabric.engine.joins.evaluate_flow_eligibility import FlowEligibility
from flowfabric.engine.joins.promote_blocked_to_eligible import MemberPromoted
from flowfabric.engine.joins.read_join import Join
from flowfabric.engine.joins.read_upstream_results import UpstreamResult
from flowfabric.engine.joins.read_window import ChildWindow
from flowfabric.engine.joins.set_edge_group_policy import JoinPolicySet
from flowfabric.engine.joins.stage_dependency_edge import EdgeStaged
from flowfabric.engine.journal.compensation import CompensationCall
from flowfabric.engine.journal.delay_with_entries import Sleeper
from flowfabric.engine.journal.entry import EntryWrite, JournalEntry
from flowfabric.engine.journal.list_steps import RecordedStep, StepPage
from flowfabric.engine.journal.read_journal import InboxSignal, Journal
from flowfabric.engine.journal.restart_execution import RestartedExecution
from flowfabric.engine.keys.list_waitpoint_hmac_kids import KidList, VerifyingKid
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import (
    KeyRotated,
    KeyUnchanged,
    PartitionRotation,
)
from flowfabric.engine.keys.seed_waitpoint_hmac_secret import KeyAlreadySeeded, KeySeeded
from flowfabric.engine.lanes.count_by_lane import LaneCount
from flowfabric.engine.lanes.list_lanes import LanePage
from flowfabric.engine.lanes.read_gauges import Gauges
from flowfabric.engine.lanes.set_lane_state import LaneChanged
from flowfabric.engine.lifecycle.cancel import Cancellation, Cancelled
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, NewExecution
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandle, LeaseHandleKind
from flowfabric.engine.lifecycle.mark_lease_expired_if_due import (
    LeaseMarkedExpired,
    LeaseNotExpired,
    NotExpiredReason,
)
from flowfabric.engine.lifecycle.read_claimed import StillClaimed
from flowfabric.engine.lifecycle.release import Released
from flowfabric.engine.lifecycle.release_after_trouble import ReleasedAfterTrouble, Trouble
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.engine.lifecycle.wait_children import ChildWait, NothingToWaitFor, WaitingChildren
from flowfabric.engine.operators.block_execution_for_admission import Blocked
from flowfabric.engine.operators.change_priority import PriorityChanged
from flowfabric.engine.operators.plan_replay import ReplayMember
from flowfabric.engine.operators.replay_execution import Replayed
from flowfabric.engine.operators.replay_flow import ReplayedFlow
from flowfabric.engine.operators.resume_execution import Resumed
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked, LeaseRevoked, NotRevokedReason
from flowfabric.engine.operators.unblock_execution import Unblocked
from flowfabric.engine.operators.wake_execution import Woken
from flowfabric.engine.queries.save_query import SavedQuery
from flowfabric.engine.quotas.check_admission import Admission
from flowfabric.engine.quotas.create_quota_policy import QuotaPolicyCreated
from flowfabric.engine.quotas.list_quota_keys import QuotaKey
from flowfabric.engine.quotas.quota_policy import QuotaPolicy
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.schedules.backfill_schedule import Backfilled
from flowfabric.engine.schedules.definition import FieldChange, ScheduleDefinition
from flowfabric.engine.schedules.diff_schedules import ChangedSchedule, ScheduleDiff
from flowfabric.engine.schedules.explain_schedule import (
    ScheduleExplanation,
    ScheduleReason,
    UpcomingInstant,
)
from flowfabric.engine.schedules.list_schedule_fires import ScheduleFire
from flowfabric.engine.schedules.list_schedules import SchedulePage
from flowfabric.engine.schedules.schedule import Schedule
from flowfabric.engine.schedules.trigger_schedule import Triggered
from flowfabric.engine.streams.append_frame import Append, Appended
from flowfabric.engine.streams.cursor import FrameId
from flowfabric.engine.streams.frame import Frame, NewFrame
from flowfabric.engine.streams.read_frames import StreamPage
from flowfabric.engine.streams.read_summary import StreamSummary
from flowfabric.engine.suspensions.close_waitpoint import ClosedWaitpoint
from flowfabric.engine.suspensions.count_waitpoints_by_kid import KidUse
from flowfabric.engine.suspensions.expire_suspension import SuspensionExpired, SuspensionNotExpired
from flowfabric.engine.suspensions.list_closed_waitpoints import (
    EndedWaitpoint,
    EndedWaitpointPage,
)
from flowfabric.engine.suspensions.list_open_waitpoints import OpenWaitpoint, OpenWaitpointPage
from flowfabric.engine.suspensions.list_pending_waitpoints import (
    PendingWaitpoint,
    PendingWaitpointPage,
)
from flowfabric.engine.suspensions.list_reviews import ReviewGroup
from flowfabric.engine.suspensions.list_signals import SentSignal
from flowfabric.engine.suspensions.list_suspended import SuspendedExecution, SuspendedPage
from flowfabric.engine.suspensions.read_inbox import Inbox
from flowfabric.engine.suspensions.read_question import GivenAnswer, Question
from flowfabric.engine.suspensions.send_signal import NewSignal
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.engine.suspensions.suspension import (
    Fresh,
    NothingToSuspendFor,
    ResumePolicy,
    SatisfiedAlready,
    Suspended,
    SuspendRequest,
    Suspension,
    UsePending,
    WaitpointDetails,
)
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.engine.workers.find_unserved import Unserved
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered
from flowfabric.engine.workers.list_unserved_routes import UnservedRoute
from flowfabric.engine.workers.list_worker_events import WorkerEvent
from flowfabric.engine.workers.list_workers import WorkerEntry, WorkerPage
from flowfabric.engine.workers.mark_worker_dead import WorkerMarkedDead
from flowfabric.engine.workers.register_worker import WorkerRefreshed, WorkerRegistered
from flowfabric.ids import ExecutionId, GroupId, PartitionKey
from flowfabric.joins import AllOf, AnyOf, JoinPolicy, Quorum
from flowfabric.limits import QuotaLimits
from flowfabric.policy import (
    ExecutionPolicy,
    ExponentialBackoff,
    FixedBackoff,
    RetryPolicy,
    TimeoutPolicy,
)
from flowfabric.schedules.spec import ScheduleSpec
from flowfabric.served import ServedElsewhere
from flowfabric.states import CancellationPolicy
from flowfabric.tokens import WaitpointToken

# fmt: off
__all__ = [
    "Activity", "ActivityStep", "Admission", "AllOf", "AlreadyMember", "AnyOf", "ApiToken",
    "Append", "Appended", "AppliedPolicy", "Attached", "AttachedExecution", "Attempt", "Backfilled",
    "Blocked",
    "BudgetAlreadySatisfied", "BudgetCreated", "BudgetHistory", "BudgetLimitsChanged", "BudgetPage",
    "BudgetReleased", "BudgetReset", "BudgetStatus", "BudgetUsageAndLimits", "BulkAction",
    "BulkArguments", "BulkPreview", "BulkTarget", "BulkTargetPage", "Cancellation",
    "CancellationPolicy", "Cancelled", "ChangedSchedule", "ChildWait", "ChildWindow", "ClaimGrant",
    "Claimant", "Claimed", "ClaimedById", "ClosedWaitpoint", "CompensationCall", "Completed",
    "Completion", "CompletionEvent", "Created", "CurrentAttempt", "CurrentLease",
    "CurrentSuspension", "DatabaseConfig", "DelayRequest", "Delayed", "Duplicate",
    "EdgeAlreadyApplied", "EdgeApplied", "EdgeGroupSnapshot", "EdgeSnapshot", "EdgeStaged",
    "EndedLease", "EndedWaitpoint", "EndedWaitpointPage", "Engine", "EntryWrite", "EventFilter",
    "EventPage", "ExecutionBody", "ExecutionContext", "ExecutionId", "ExecutionInfo",
    "ExecutionOutcome", "ExecutionPage", "ExecutionPolicy", "ExecutionSnapshot", "ExpiredLease",
    "ExpiredLeaseCursor", "ExpiredLeasePage", "ExpiringLeases", "Explanation", "ExplanationReason",
    "ExponentialBackoff", "Failure", "FailureGroup", "FailureGroups", "FieldChange", "FixedBackoff",
    "FlowAlreadyCancelled", "FlowCancelAccepted", "FlowCreated", "FlowEligibility", "FlowExists",
    "FlowMember", "FlowPage", "FlowSnapshot", "FlowStates", "FlowStatus", "FlowSubmitted",
    "FlowSummary", "FoundExecution", "Frame", "FrameId", "Fresh", "Gauges", "GivenAnswer",
    "GrantArguments", "GrantNotFound", "GrantedClaim", "GroupId", "HardBreach", "HeldBack",
    "HeldBackPage", "HistoryEntry", "HistoryPage", "Inbox", "InboxSignal", "Join", "JoinPolicy",
    "JoinPolicySet", "Journal", "JournalEntry", "KeyAlreadySeeded", "KeyRotated", "KeySeeded",
    "KeyUnchanged", "KidList", "KidUse", "LaneChanged", "LaneCount", "LanePage", "LaneStates",
    "Lease", "LeaseEvent", "LeaseHandle", "LeaseHandleKind", "LeaseMarkedExpired",
    "LeaseNotExpired", "LeaseNotRevoked", "LeaseRevoked", "MatchCount", "MemberAdded",
    "MemberCounts", "MemberPage", "MemberPromoted", "MergedEvents", "NewEdge", "NewExecution",
    "NewFlow", "NewFrame", "NewSignal", "NotExpiredReason", "NotReclaimable", "NotRevokedReason",
    "NothingToSuspendFor", "NothingToWaitFor", "OpenSession", "OpenWaitpoint", "OpenWaitpointPage",
    "OperatorEvent", "OwnSpend", "PartitionConfig", "PartitionKey", "PartitionRotation",
    "PendingWaitpoint", "PendingWaitpointPage", "PriorityChanged", "Question", "Quorum", "QuotaKey",
    "QuotaLimits", "QuotaPolicy", "QuotaPolicyCreated", "ReasonCode", "ReclaimCapExceeded",
    "ReclaimGrant", "RecordedStep", "Released", "ReleasedAfterTrouble", "ReplayMember", "Replayed",
    "ReplayedFlow", "RestartedExecution", "ResumePolicy", "Resumed", "RetryPolicy",
    "RetryScheduled", "ReviewGroup", "SatisfiedAlready", "SavedQuery", "Schedule",
    "ScheduleDefinition", "ScheduleDiff", "ScheduleExplanation", "ScheduleFire", "SchedulePage",
    "ScheduleReason", "ScheduleSpec", "Search", "SearchPage", "SentSignal", "ServedElsewhere",
    "SessionOpened", "SignalAccepted", "SignalDuplicate", "SignalEvent", "Sleeper", "SoftBreach",
    "Spend", "StateVector", "StepPage", "StillClaimed", "StoredToken", "StreamPage",
    "StreamSummary", "Subscription", "SuspendRequest", "Suspended", "SuspendedExecution",
    "SuspendedPage", "Suspension", "SuspensionExpired", "SuspensionNotExpired", "TerminalFailed",
    "TimeoutPolicy", "TokenCreated", "TokenRevoked", "Triggered", "Trim", "Trouble", "Unblocked",
    "Unserved", "UnservedRoute", "UpcomingInstant", "UpstreamResult", "UsageAlreadyApplied",
    "UsageCounted", "UsageOutcome", "UsePending", "VerifiedGrant", "VerifyingKid",
    "WaitingChildren", "Waitpoint", "WaitpointDetails", "WaitpointToken", "WaitsSeen", "WebSession",
    "Woken", "WorkerEntry", "WorkerEvent", "WorkerMarkedDead", "WorkerNotRegistered", "WorkerPage",
    "WorkerRefreshed", "WorkerRegistered",
]
# fmt: on
