"""What users import: a name that appears or disappears here is a decision."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import tomllib
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import flowfabric
import flowfabric.conditions
import flowfabric.engine
import flowfabric.errors
import flowfabric.metrics
import flowfabric.policy
import flowfabric.states
import flowfabric.testing
from flowfabric import Retry
from flowfabric.engine import Engine
from flowfabric.worker.settings import WorkerSettings
from tests.walls.signatures import CALLED, methods, types_met
from tests.walls.sources import modules

PINNED = """
AllOf AnyOf App Batch BatchCtx BudgetExceeded Call ChildFailed Client Codec ConfigError Conflict
Contention Ctx Debounce DeclaredStep Depends Engine EngineError EntryDecodeError ExecutionCancelled
ExecutionExpired ExecutionFailed ExecutionId ExecutionSkipped Fail Flow FlowCancelled
FlowFabricError FlowFailed FlowHandle Handle IdempotencyConflict JournalFull JsonCodec LeaseExpired
LeaseLost LogContext Member MsgpackCodec NestedDurableCall NonDeterministicReplay NotFound
OutcomeError PublicState Quorum QuotaLimits Rate ResourceExhausted ResultDecodeError ResultTimeout
Retry RetryLater Selected Signal SignalPayloadInvalid SignalTimeout StaleLease StateError StepFailed
StepNeedsKey Task TransactionOpen TransportError Unavailable Unique UniqueKeyTaken ValidationError
WaitpointToken Worker WrongThread verify_token
"""
PINNED_OF_THE_ENGINE = """
Activity ActivityStep Admission AllOf AlreadyMember AnyOf ApiToken Append Appended AppliedPolicy
Attached AttachedExecution Attempt Backfilled Blocked BudgetAlreadySatisfied BudgetCreated
BudgetHistory BudgetLimitsChanged BudgetPage BudgetReleased BudgetReset BudgetStatus
BudgetUsageAndLimits BulkAction BulkArguments BulkPreview BulkTarget BulkTargetPage Cancellation
CancellationPolicy Cancelled ChangedSchedule ChildWait ChildWindow ClaimGrant Claimant Claimed
ClaimedById ClosedWaitpoint CompensationCall Completed Completion CompletionEvent Created
CurrentAttempt CurrentLease CurrentSuspension DatabaseConfig DelayRequest Delayed Duplicate
EdgeAlreadyApplied EdgeApplied EdgeGroupSnapshot EdgeSnapshot EdgeStaged EndedLease EndedWaitpoint
EndedWaitpointPage Engine EntryWrite EventFilter EventPage ExecutionBody ExecutionContext
ExecutionId ExecutionInfo ExecutionOutcome ExecutionPage ExecutionPolicy ExecutionSnapshot
ExpiredLease ExpiredLeaseCursor ExpiredLeasePage ExpiringLeases Explanation ExplanationReason
ExponentialBackoff Failure FailureGroup FailureGroups FieldChange FixedBackoff FlowAlreadyCancelled
FlowCancelAccepted FlowCreated FlowEligibility FlowExists FlowMember FlowPage FlowSnapshot
FlowStates FlowStatus FlowSubmitted FlowSummary FoundExecution Frame FrameId Fresh Gauges
GivenAnswer GrantArguments GrantNotFound GrantedClaim GroupId HardBreach HeldBack HeldBackPage
HistoryEntry HistoryPage Inbox InboxSignal Join JoinPolicy JoinPolicySet Journal JournalEntry
KeyAlreadySeeded KeyRotated KeySeeded KeyUnchanged KidList KidUse LaneChanged LaneCount LanePage
LaneStates Lease LeaseEvent LeaseHandle LeaseHandleKind LeaseMarkedExpired LeaseNotExpired
LeaseNotRevoked LeaseRevoked MatchCount MemberAdded MemberCounts MemberPage MemberPromoted
MergedEvents NewEdge NewExecution NewFlow NewFrame NewSignal NotExpiredReason NotReclaimable
NotRevokedReason NothingToSuspendFor NothingToWaitFor OpenSession OpenWaitpoint OpenWaitpointPage
OperatorEvent OwnSpend PartitionConfig PartitionKey PartitionRotation PendingWaitpoint
PendingWaitpointPage PriorityChanged Question Quorum QuotaKey QuotaLimits QuotaPolicy
QuotaPolicyCreated ReasonCode ReclaimCapExceeded ReclaimGrant RecordedStep Released
ReleasedAfterTrouble ReplayMember Replayed ReplayedFlow RestartedExecution ResumePolicy Resumed
RetryPolicy RetryScheduled ReviewGroup SatisfiedAlready SavedQuery Schedule ScheduleDefinition
ScheduleDiff ScheduleExplanation ScheduleFire SchedulePage ScheduleReason ScheduleSpec Search
SearchPage SentSignal ServedElsewhere SessionOpened SignalAccepted SignalDuplicate SignalEvent
Sleeper SoftBreach Spend StateVector StepPage StillClaimed StoredToken StreamPage StreamSummary
Subscription SuspendRequest Suspended SuspendedExecution SuspendedPage Suspension SuspensionExpired
SuspensionNotExpired TerminalFailed TimeoutPolicy TokenCreated TokenRevoked Triggered Trim Trouble
Unblocked Unserved UnservedRoute UpcomingInstant UpstreamResult UsageAlreadyApplied UsageCounted
UsageOutcome UsePending VerifiedGrant VerifyingKid WaitingChildren Waitpoint WaitpointDetails
WaitpointToken WaitsSeen WebSession Woken WorkerEntry WorkerEvent WorkerMarkedDead
WorkerNotRegistered WorkerPage WorkerRefreshed WorkerRegistered
"""
PINNED_OF_METRICS = "CONTENT_TYPE DatabaseGauges MetricsEndpoint SharedCounters exposition"
PINNED_FOR_TESTS = "Clock Crashes History TestServer assert_replays crash_after record_history"
OF_THE_ENGINE = (Engine, *Engine.__bases__)
VOCABULARY = (
    flowfabric.conditions,
    flowfabric.errors,
    flowfabric.policy,
    flowfabric.states,
)
"""Modules that users import beside `flowfabric` and `flowfabric.engine`."""


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (flowfabric, PINNED),
        (flowfabric.engine, PINNED_OF_THE_ENGINE),
        (flowfabric.metrics, PINNED_OF_METRICS),
        (flowfabric.testing, PINNED_FOR_TESTS),
    ],
)
def test_the_public_names_are_pinned(module: ModuleType, names: str) -> None:
    assert sorted(module.__all__) == names.split()


@pytest.mark.parametrize("module", [flowfabric, flowfabric.engine])
def test_every_public_name_is_there_and_says_what_it_is(module: ModuleType) -> None:
    for name in module.__all__:
        assert getattr(module, name).__doc__, name


def test_every_type_that_the_engine_takes_or_answers_can_be_imported() -> None:
    public = {
        getattr(module, name)
        for module in (flowfabric, flowfabric.engine)
        for name in module.__all__
        if name != "JoinPolicy"
    } | {
        value for module in VOCABULARY for value in vars(module).values() if inspect.isclass(value)
    }

    met = {kind: where for owner in OF_THE_ENGINE for kind, where in types_met(owner).items()}

    assert len(met) > 100
    assert {kind.__qualname__: where for kind, where in met.items() if kind not in public} == {}


def test_the_engine_exports_no_type_that_nobody_meets() -> None:
    met = {kind.__name__ for owner in OF_THE_ENGINE for kind in types_met(owner)}

    assert set(flowfabric.engine.__all__) - met == {"Engine", "JoinPolicy", "UsageOutcome"}


def test_durations_and_instants_of_the_python_api_are_never_milliseconds() -> None:
    parameters = [
        f"{method}({name})"
        for owner in CALLED
        for method in methods(owner)
        for name in method.parameters
        if name.endswith("_ms") and name != "wall_ms"  # a dimension of budgets, not a duration
    ]
    fields = [
        f"{kind.__name__}.{field}"
        for kind in [
            *(kind for owner in OF_THE_ENGINE for kind in types_met(owner)),
            Retry,
            WorkerSettings,
        ]
        if issubclass(kind, msgspec.Struct)
        for field in kind.__struct_fields__
        if field.endswith("_ms")
    ]

    assert parameters + fields == []


def test_no_two_public_types_have_the_same_name() -> None:
    """The blocking twins of `flowfabric.sync` alone are called like what they wrap."""
    homes: dict[str, list[str]] = {}
    for module in modules():
        if module.name == "flowfabric.sync":
            continue
        for name in _types_of(module.tree):
            if not name.startswith("_"):
                homes.setdefault(name, []).append(module.name)

    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def _types_of(tree: ast.Module) -> list[str]:
    """The classes that a module defines, and its type aliases."""
    aliases = [
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and ast.unparse(node.annotation) == "TypeAlias"
    ]
    return aliases + [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())

    assert flowfabric.__version__ == importlib.metadata.version("flowfabric")
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/flowfabric/version.py"
