"""Which attempt a log record comes from: what handlers log gets the id of their execution."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final
from uuid import UUID

from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.tracing import log_fields

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_running: Final[ContextVar[tuple[Lease, str, str, UUID | None] | None]] = ContextVar(
    "flowfabric_attempt", default=None
)


def set_log_context(claimed: Claimed) -> None:
    """From now on this task, its threads and its own tasks log for this attempt."""
    _running.set((claimed.lease, claimed.execution_kind, claimed.lane_id, claimed.flow_id))


class LogContext(logging.Filter):
    """Gives records `execution_id`, `kind`, `lane` and `attempt`; a filter for your own handlers.

    Records that a handler of a task writes have none of them otherwise. `attempt` counts from 1.
    Records of a member of a flow have `flow_id` too; those inside a span have `trace_id` and
    `span_id`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True."""
        running = _running.get()
        if running is not None and not hasattr(record, "execution_id"):
            lease, record.kind, record.lane, flow_id = running
            record.execution_id, record.attempt = str(lease.execution_id), lease.attempt_index + 1
            if flow_id is not None:
                record.flow_id = str(flow_id)
        if not hasattr(record, "trace_id"):
            vars(record).update(log_fields())
        return True


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """The attributes of the record that logging itself does not make: `extra`, and the context."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
