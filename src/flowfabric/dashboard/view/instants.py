"""Instants of a schedule on the clock of its zone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

from flowfabric.dashboard.view.durations import length
from flowfabric.errors import EngineError
from flowfabric.schedules.cron import cron_words
from flowfabric.schedules.spec import ScheduleSpec
from flowfabric.schedules.zones import zone_of


class ZonedInstant(msgspec.Struct, frozen=True, kw_only=True):
    """An instant as the clock of a zone shows it."""

    at: datetime
    text: str
    clock_changed: bool
    """Is the clock further ahead, or less, than at the instant before?"""


def when(spec: ScheduleSpec) -> str:
    """When the schedule fires, in words."""
    if spec.cron is not None:
        return cron_words(spec.cron)
    if spec.every is not None:
        return f"Every {length(spec.every)}"
    return f"Once at {spec.at:%Y-%m-%d %H:%M:%S} UTC"


def zoned(spec: ScheduleSpec, instants: Sequence[datetime]) -> list[ZonedInstant]:
    """The instants on the clock of the schedule, with the changes of that clock marked."""
    try:
        zone = zone_of(spec.tz)
    except EngineError:
        zone = ZoneInfo("UTC")
    shown: list[ZonedInstant] = []
    before: timedelta | None = None
    for at in instants:
        local = at.astimezone(zone)
        offset = local.utcoffset()
        shown.append(
            ZonedInstant(
                at=at,
                text=f"{local:%a %Y-%m-%d %H:%M:%S %Z}",
                clock_changed=before is not None and offset != before,
            )
        )
        before = offset
    return shown
