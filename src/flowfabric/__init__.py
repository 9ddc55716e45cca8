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
    from flowfabric.app.app import App
    from flowfabric.app.batch import Batch, BatchCtx
    from flowfabric.app.codec import Codec, JsonCodec, MsgpackCodec
    from flowfabric.app.depends import Depends
    from flowfabric.app.flow import Flow
    from flowfabric.app.member import Member
    from flowfabric.app.task import Call, Task
    from flowfabric.client.client import Client
    from flowfabric.client.flow_handle import FlowHandle
    from flowfabric.client.handle import Handle
    from flowfabric.engine.engine import Engine
    from flowfabric.worker.context import Ctx
    from flowfabric.worker.durable.select import Selected
    from flowfabric.worker.durable.step import DeclaredStep
    from flowfabric.worker.log_context import LogContext
    from flowfabric.worker.loop import Worker

# The names that need the engine or the driver, which take most of the time of an import: each is
# imported when it is used.
_HOMES = {
    "App": "app.app",
    "Batch": "app.batch",
    "BatchCtx": "app.batch",
    "Call": "app.task",
    "Client": "client.client",
    "Codec": "app.codec",
    "Ctx": "worker.context",
    "DeclaredStep": "worker.durable.step",
    "Depends": "app.depends",
    "Engine": "engine.engine",
    "Flow": "app.flow",
    "FlowHandle": "client.flow_handle",
    "Handle": "client.handle",
    "JsonCodec": "app.codec",
    "LogContext": "worker.log_context",
    "Member": "app.member",
    "MsgpackCodec": "app.codec",
    "Selected": "worker.durable.select",
    "Task": "app.task",
    "Worker": "worker.loop",
}

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
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
