"""Streams: what frames are, how they are kept, and why a stream is closed."""

from enum import StrEnum


class FrameMode(StrEnum):
    """How long a frame is kept."""

    DURABLE = "durable"
    SUMMARY = "summary"
    """The payload is a patch, which is also merged into the summary of the stream."""
    BEST_EFFORT = "best_effort"


class FrameKind(StrEnum):
    """The type of a frame that is given no type of its own."""

    STDOUT = "stdout"
    STDERR = "stderr"
    EVENT = "event"
    BLOB = "blob"


class PatchKind(StrEnum):
    """How the payload of a summary frame changes the summary."""

    JSON_MERGE_PATCH = "json-merge-patch"


class FrameVisibility(StrEnum):
    """Which frames a reader sees."""

    ALL = "all"
    EXCLUDE_BEST_EFFORT = "exclude_best_effort"


class StreamClosedReason(StrEnum):
    """Why nothing more is appended to a stream: how its attempt has ended."""

    ATTEMPT_SUCCESS = "attempt_success"
    ATTEMPT_FAILURE = "attempt_failure"
    ATTEMPT_CANCELLED = "attempt_cancelled"
    LEASE_EXPIRED = "lease_expired"
    """Open again if the attempt goes on under another lease."""
    RECLAIMED = "reclaimed"
    EXPIRED = "expired"
    SUSPENSION_TIMEOUT = "suspension_timeout"
    DEPENDENCY_IMPOSSIBLE = "dependency_impossible"
    RESTARTED = "restarted"
