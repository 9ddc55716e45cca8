"""What a schedule's instants follow from: a cron expression, an interval, or one instant."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from flowfabric.errors import invalid_input
from flowfabric.instants import check_instant
from flowfabric.policy import milliseconds
from flowfabric.schedules.cron import check_cron
from flowfabric.schedules.zones import zone_of
from flowfabric.states import ScheduleSpecKind

SHORTEST_MS: Final = 1000
"""The shortest interval."""
DEFAULT_TZ: Final = "UTC"
_FIELDS: Final = {
    ScheduleSpecKind.CRON: ("cron", ("tz",)),
    ScheduleSpecKind.INTERVAL: ("every", ("anchor",)),
    ScheduleSpecKind.ONCE: ("at", ()),
}
"""The field that each kind needs, and those that it may have."""


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule fires. `spec_of` makes and checks one; the fields are those that are stored.

    An interval without an anchor gets one when it is stored. One that was made otherwise is checked
    when it is stored, by `check_spec`.
    """

    spec_kind: ScheduleSpecKind
    cron: str | None = None
    tz: str = DEFAULT_TZ
    every: timedelta | None = None
    anchor: datetime | None = None
    at: datetime | None = None

    def __str__(self) -> str:
        match self.spec_kind:
            case ScheduleSpecKind.CRON:
                return f"{self.cron} ({self.tz})"
            case ScheduleSpecKind.INTERVAL:
                return f"every {self.every}"
            case ScheduleSpecKind.ONCE:
                return f"once at {self.at}"


def spec_of(
    *,
    cron: str | None = None,
    tz: str | None = None,
    every: float | timedelta | None = None,
    at: datetime | None = None,
    starts: datetime | None = None,
) -> ScheduleSpec:
    """The specification of one of `cron`, `every` and `at`; raises `ValidationError`.

    An interval counts from `starts`, if given.
    """
    given = [
        name for name, value in (("cron", cron), ("every", every), ("at", at)) if value is not None
    ]
    if len(given) != 1:
        both = " and ".join(given)
        raise invalid_input("schedule", both or None, "needs one of cron, every and at")
    if cron is not None:
        zone = DEFAULT_TZ if tz is None else tz
        zone_of(zone)
        return ScheduleSpec(spec_kind=ScheduleSpecKind.CRON, cron=check_cron(cron), tz=zone)
    if tz is not None:
        raise invalid_input("tz", tz, f"is for cron: {given[0]} does not depend on a zone")
    if every is not None:
        every_ms = milliseconds(every, field="every")
        if every_ms < SHORTEST_MS:
            shown = str(every) if isinstance(every, timedelta) else every
            raise invalid_input("every", shown, "must be at least 1 second")
        if starts is not None:
            check_instant(starts, field="starts")
        return ScheduleSpec(
            spec_kind=ScheduleSpecKind.INTERVAL,
            every=timedelta(milliseconds=every_ms),
            anchor=starts,
        )
    assert at is not None
    return ScheduleSpec(spec_kind=ScheduleSpecKind.ONCE, at=check_instant(at, field="at"))


@lru_cache(maxsize=1024)
def check_spec(spec: ScheduleSpec) -> None:
    """Raise `ValidationError` unless the fields go together and `spec_of` would take them."""
    needed, allowed = _FIELDS[spec.spec_kind]
    for field in ("cron", "every", "at", "tz", "anchor"):
        value: object = getattr(spec, field)
        is_given = value != DEFAULT_TZ if field == "tz" else value is not None
        if is_given and field not in (needed, *allowed):
            shown = value if isinstance(value, str) else str(value)
            raise invalid_input(field, shown, f"does not go with spec_kind {spec.spec_kind.value}")
    if getattr(spec, needed) is None:
        raise invalid_input(needed, None, f"is missing: spec_kind is {spec.spec_kind.value}")
    spec_of(
        cron=spec.cron,
        tz=None if spec.cron is None else spec.tz,
        every=spec.every,
        at=spec.at,
        starts=spec.anchor,
    )
