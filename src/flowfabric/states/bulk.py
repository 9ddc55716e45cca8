"""Words of changes of many executions."""

from __future__ import annotations

from enum import StrEnum


class BulkActionKind(StrEnum):
    """What is done to many executions."""

    CANCEL = "cancel"
    REPLAY = "replay"
    PRIORITY = "priority"
    BLOCK = "block"
    UNBLOCK = "unblock"
    TAG = "tag"
    REVOKE = "revoke"
    """Take them away from their workers."""
    RESUME = "resume"


class BulkState(StrEnum):
    """How far a change of many executions is."""

    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"
