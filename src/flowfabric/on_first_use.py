"""The public names that need the engine and the driver; `flowfabric` imports them when needed."""

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

__all__ = [
    "App",
    "Batch",
    "BatchCtx",
    "Call",
    "Client",
    "Codec",
    "Ctx",
    "DeclaredStep",
    "Depends",
    "Engine",
    "Flow",
    "FlowHandle",
    "Handle",
    "JsonCodec",
    "LogContext",
    "Member",
    "MsgpackCodec",
    "Selected",
    "Task",
    "Worker",
]
