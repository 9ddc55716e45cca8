"""Durable tasks on Postgres: handlers run at least once, outcomes are recorded exactly once."""

import importlib
from typing import TYPE_CHECKING, Final

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
    LeaseExpired,
    LeaseLost,
    NonDeterministicReplay,
    NotFound,
    OutcomeError,
    ResourceExhausted,
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
    from flowfabric.app.app import App
    from flowfabric.app.codec import Codec, JsonCodec, MsgpackCodec
    from flowfabric.app.depends import Depends
    from flowfabric.app.flow import Flow
    from flowfabric.app.task import Call, Task
    from flowfabric.client.client import Client
    from flowfabric.client.flow_handle import FlowHandle
    from flowfabric.client.handle import Handle
    from flowfabric.engine.engine import Engine
    from flowfabric.worker.context import Ctx
    from flowfabric.worker.loop import Worker

# Imported when first used: these need the engine and the driver, which take most of the time.
_ON_FIRST_USE: Final = {
    "App": "flowfabric.app.app",
    "Call": "flowfabric.app.task",
    "Client": "flowfabric.client.client",
    "Codec": "flowfabric.app.codec",
    "Ctx": "flowfabric.worker.context",
    "Depends": "flowfabric.app.depends",
    "Engine": "flowfabric.engine.engine",
    "Flow": "flowfabric.app.flow",
    "FlowHandle": "flowfabric.client.flow_handle",
    "Handle": "flowfabric.client.handle",
    "JsonCodec": "flowfabric.app.codec",
    "MsgpackCodec": "flowfabric.app.codec",
    "Task": "flowfabric.app.task",
    "Worker": "flowfabric.worker.loop",
}

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
    "JsonCodec",
    "LeaseExpired",
    "LeaseLost",
    "MsgpackCodec",
    "NonDeterministicReplay",
    "NotFound",
    "OutcomeError",
    "PublicState",
    "Quorum",
    "ResourceExhausted",
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
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_ON_FIRST_USE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
