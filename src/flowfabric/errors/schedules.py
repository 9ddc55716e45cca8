"""Schedules refuse the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric.errors.state import Conflict

if TYPE_CHECKING:
    from collections.abc import Sequence


class ScheduleAlreadyExists(Conflict):
    """A schedule of this name has another definition; update it, or choose another name.

    `differs` has the fields that differ. Nothing was written.
    """

    code = "schedule_already_exists"

    def __init__(self, name: str, *, differs: Sequence[str]) -> None:
        super().__init__(
            f"schedule {name!r} exists with another {', '.join(differs)}: update it, or choose"
            " another name"
        )
        self.name, self.differs = name, list(differs)


class ScheduleChanged(Conflict):
    """The schedule was changed or has fired since it was read; read it again."""

    code = "schedule_changed"

    def __init__(self, name: str, *, expected: int, current: int) -> None:
        super().__init__(f"schedule {name!r} is at revision {current}, not {expected}")
        self.name, self.expected, self.current = name, expected, current


class ScheduleFinished(Conflict):
    """The schedule has no further instant: give it another definition."""

    code = "schedule_finished"

    def __init__(self, name: str) -> None:
        super().__init__(f"schedule {name!r} has no further instant")
        self.name = name
