"""What tests of explanations begin with: workers that live, and reasons as they are told."""

from datetime import datetime
from typing import Any

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.executions.explanation import ExplanationReason, ReasonCode
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.ids import ExecutionId


async def worker(db: Connection, worker_instance_id: str = "w-1", **fields: Any) -> None:
    """A worker process that lives for half a minute."""
    defaults: dict[str, Any] = {
        "worker_id": "w",
        "worker_instance_id": worker_instance_id,
        "lanes": ["default"],
        "liveness_ttl": 30,
    }
    await register_worker(db, **(defaults | fields))


async def whys(db: Connection, execution_id: ExecutionId) -> list[ReasonCode]:
    """What is told, the decisive reason first."""
    return [reason.why for reason in (await explain_execution(db, execution_id)).reasons]


async def only(db: Connection, execution_id: ExecutionId) -> ExplanationReason:
    """The only reason that is told."""
    [reason] = (await explain_execution(db, execution_id)).reasons
    return reason


def at(moment: datetime) -> str:
    """A moment as a message writes it."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
