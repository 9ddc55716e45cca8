"""Durable tasks on Postgres: handlers run at least once, outcomes are recorded exactly once."""

from typing import TYPE_CHECKING

from flowfabric.errors import (
    ChildFailed,
    ConfigError,
    Conflict,
    Contention,
    EngineError,
    ExecutionCancelled,
    ExecutionExpired,
    ExecutionFailed,
    ExecutionSkipped,
    Fail,
    FlowCancelled,
    FlowFabricError,
    FlowFailed,
    IdempotencyConflict,
    LeaseExpired,
    LeaseLost,
    NonDeterministicReplay,
    NotFound,
    OutcomeError,
    ResourceExhausted,
    ResultDecodeError,
    ResultTimeout,
    RetryLater,
    StaleLease,
    StateError,
    TransportError,
    Unavailable,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, AnyOf, Quorum
from flowfabric.policy import Retry
from flowfabric.states import PublicState
from flowfabric.version import __version__ as __version__

if TYPE_CHECKING:
    from flowfabric.on_first_use import (
        App,
        Call,
        Client,
        Codec,
        Ctx,
        Depends,
        Engine,
        Flow,
        FlowHandle,
        Handle,
        JsonCodec,
        LogContext,
        Member,
        MsgpackCodec,
        Task,
        Worker,
    )

__all__ = [
    "AllOf",
    "AnyOf",
    "App",
    "Call",
    "ChildFailed",
    "Client",
    "Codec",
    "ConfigError",
    "Conflict",
    "Contention",
    "Ctx",
    "Depends",
    "Engine",
    "EngineError",
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
    "JsonCodec",
    "LeaseExpired",
    "LeaseLost",
    "LogContext",
    "Member",
    "MsgpackCodec",
    "NonDeterministicReplay",
    "NotFound",
    "OutcomeError",
    "PublicState",
    "Quorum",
    "ResourceExhausted",
    "ResultDecodeError",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "StaleLease",
    "StateError",
    "Task",
    "TransportError",
    "Unavailable",
    "ValidationError",
    "Worker",
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
