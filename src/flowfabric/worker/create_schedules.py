"""A worker that starts creates the schedules of its application that are missing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from flowfabric.engine.schedules.definition import ScheduleDefinition

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike

log: Final = logging.getLogger("flowfabric.schedules")


async def create_schedules(
    engine: EngineLike, definitions: Sequence[ScheduleDefinition], *, namespace: str, actor: str
) -> None:
    """Schedules that are missing exist; of others it is logged how they differ.

    A worker neither changes nor deletes one: while a new version is rolled out, workers of both
    run. Raises `ValidationError` for a schedule that would never fire.
    """
    if not definitions:
        return
    found = await engine.diff_schedules(definitions, namespace=namespace)
    if found.missing:
        await engine.sync_schedules(
            definitions, namespace=namespace, missing_only=True, actor=actor
        )
        log.info("created schedules: %s", ", ".join(found.missing))
    for each in found.changed:
        changes = "; ".join(str(change) for change in each.changes)
        log.warning(
            "schedule %s is stored otherwise than the application defines it: %s. "
            "Apply it with: ff schedules sync MODULE:APP",
            each.name,
            changes,
        )
    if found.orphans:
        log.warning(
            "schedules that the application does not define any more: %s. "
            "Delete them with: ff schedules sync MODULE:APP --prune",
            ", ".join(found.orphans),
        )
