"""Durable tasks on Postgres: handlers run at least once, outcomes are recorded exactly once."""

from typing import TYPE_CHECKING

from flowfabric.conditions import Signal
from flowfabric.errors import (
    BudgetExceeded,
    ChildFailed,
    ConfigError,
    Conflict,
    Contention,
    EngineError,
    EntryDecodeError,
    ExecutionCancelled,
    ExecutionExpired,
    ExecutionFailed,
    ExecutionSkipped,
    Fail,
    FlowCancelled,
    FlowFabricError,
    FlowFailed,
    IdempotencyConflict,
    JournalFull,
    LeaseExpired,
    LeaseLost,
    NestedDurableCall,
    NonDeterministicReplay,
    NotFound,
    OutcomeError,
    ResourceExhausted,
    ResultDecodeError,
    ResultTimeout,
    RetryLater,
    SignalPayloadInvalid,
    SignalTimeout,
    StaleLease,
    StateError,
    StepFailed,
    StepNeedsKey,
    TransactionOpen,
    TransportError,
    Unavailable,
    UniqueKeyTaken,
    ValidationError,
    WrongThread,
)
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, AnyOf, Quorum
from flowfabric.limits import Debounce, QuotaLimits, Rate, Unique
from flowfabric.policy import Retry
from flowfabric.states import PublicState
from flowfabric.tokens import WaitpointToken, verify_token
from flowfabric.version import __version__ as __version__

if TYPE_CHECKING:
    from flowfabric.on_first_use import (
        App,
        Batch,
        BatchCtx,
        Call,
        Client,
        Codec,
        Ctx,
        DeclaredStep,
        Depends,
        Engine,
        Flow,
        FlowHandle,
        Handle,
        JsonCodec,
        LogContext,
        Member,
        MsgpackCodec,
        Selected,
        Task,
        Worker,
    )

__all__ = [
    "AllOf",
    "AnyOf",
    "App",
    "Batch",
    "BatchCtx",
    "BudgetExceeded",
    "Call",
    "ChildFailed",
    "Client",
    "Codec",
    "ConfigError",
    "Conflict",
    "Contention",
    "Ctx",
    "Debounce",
    "DeclaredStep",
    "Depends",
    "Engine",
    "EngineError",
    "EntryDecodeError",
    "ExecutionCancelled",
    "ExecutionExpired",
    "ExecutionFailed",
    "ExecutionId",
    "ExecutionSkipped",
    "Fail",
    "Flow",
    "FlowCancelled",
    "FlowFabricError",
    "FlowFailed",
    "FlowHandle",
    "Handle",
    "IdempotencyConflict",
    "JournalFull",
    "JsonCodec",
    "LeaseExpired",
    "LeaseLost",
    "LogContext",
    "Member",
    "MsgpackCodec",
    "NestedDurableCall",
    "NonDeterministicReplay",
    "NotFound",
    "OutcomeError",
    "PublicState",
    "Quorum",
    "QuotaLimits",
    "Rate",
    "ResourceExhausted",
    "ResultDecodeError",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "Selected",
    "Signal",
    "SignalPayloadInvalid",
    "SignalTimeout",
    "StaleLease",
    "StateError",
    "StepFailed",
    "StepNeedsKey",
    "Task",
    "TransactionOpen",
    "TransportError",
    "Unavailable",
    "Unique",
    "UniqueKeyTaken",
    "ValidationError",
    "WaitpointToken",
    "Worker",
    "WrongThread",
    "verify_token",
]


def __getattr__(name: str) -> object:
    # The engine and the driver take most of the time of an import: they wait for the first use.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flowfabric import on_first_use

    value = globals()[name] = getattr(on_first_use, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
