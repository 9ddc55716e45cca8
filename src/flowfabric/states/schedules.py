"""Schedules, and what became of each of their instants."""

from enum import StrEnum


class ScheduleSpecKind(StrEnum):
    """What the instants of a schedule follow from."""

    CRON = "cron"
    INTERVAL = "interval"
    ONCE = "once"


class ScheduleOverlap(StrEnum):
    """What a firing does while an earlier execution of the schedule has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"
    QUEUE_ALL = "queue_all"
    CANCEL_RUNNING = "cancel_running"


class ScheduleState(StrEnum):
    """Whether a schedule fires."""

    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    """It has no further instant."""
    BROKEN = "broken"
    """Its next instant cannot be computed; `state_reason` has the error."""


class ScheduleSource(StrEnum):
    """Where a schedule is defined."""

    CODE = "code"
    API = "api"


class ScheduleOutcome(StrEnum):
    """What became of one instant of a schedule."""

    FIRED = "fired"
    TRIGGERED = "triggered"
    BACKFILLED = "backfilled"
    SKIPPED = "skipped"
    MISSED = "missed"
    REFUSED = "refused"
