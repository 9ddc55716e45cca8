"""Which attempt a log record comes from: what handlers log gets the id of their execution."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Final

from flowfabric.engine.lifecycle.sql.lease import Claimed

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_running: Final[ContextVar[tuple[str, str, int] | None]] = ContextVar(
    "flowfabric_attempt", default=None
)


def set_log_context(claimed: Claimed) -> None:
    """From now on this task, its threads and its own tasks log for this attempt."""
    lease = claimed.lease
    _running.set((str(lease.execution_id), claimed.execution_kind, lease.attempt_index + 1))


class AttemptContext(logging.Filter):
    """Gives records `execution_id`, `kind` and `attempt`; a filter for a handler of your logging.

    Records that a handler of a task writes have none of them otherwise. `attempt` counts from 1.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True."""
        running = _running.get()
        if running is not None and not hasattr(record, "execution_id"):
            record.execution_id, record.kind, record.attempt = running
        return True


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """The attributes of the record that logging itself does not make: `extra`, and the context."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
