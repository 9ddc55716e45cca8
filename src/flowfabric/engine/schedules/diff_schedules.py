"""How the schedules that an application defines differ from those that are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.schedules.definition import FieldChange, ScheduleDefinition, differences
from flowfabric.engine.schedules.schedule import read_schedules

ORPHANS: Final[LiteralString] = """
-- schedules.diff_schedules
SELECT name FROM ff.schedule
 WHERE namespace = %(namespace)s AND source = 'code' AND name <> ALL (%(names)s::text[])
 ORDER BY namespace, name
"""


class ChangedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that the application defines otherwise than it is stored."""

    name: str
    changes: list[FieldChange]


class ScheduleDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What a sync would do; nothing if all three are empty."""

    missing: list[str]
    """Defined, and not stored."""
    changed: list[ChangedSchedule]
    orphans: list[str]
    """Stored from code, and not defined any more."""

    @property
    def is_empty(self) -> bool:
        return not (self.missing or self.changed or self.orphans)


class _Name(msgspec.Struct, frozen=True):
    name: str


async def diff_schedules(
    conn: Connection,
    definitions: Sequence[ScheduleDefinition],
    *,
    namespace: str = "default",
    partitions: int = 256,
) -> ScheduleDiff:
    """What differs between these definitions and what is stored; nothing is changed.

    All of them are of this namespace. Schedules that were created through the client or `ff` are no
    orphans.
    """
    names = [each.name for each in definitions]
    stored = await read_schedules(conn, namespace, names, partitions=partitions)
    changed = [
        ChangedSchedule(name=each.name, changes=changes)
        for each in definitions
        if each.name in stored and (changes := differences(stored[each.name].definition, each))
    ]
    params: dict[str, Any] = {"namespace": namespace, "names": names}
    orphans = await fetch_all(conn, ORPHANS, _Name, **params)
    return ScheduleDiff(
        missing=[name for name in names if name not in stored],
        changed=changed,
        orphans=[row.name for row in orphans],
    )
