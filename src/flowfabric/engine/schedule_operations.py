"""The operations of `Engine` on schedules; each change leaves an operator event."""

from __future__ import annotations

from flowfabric.engine.operation import snapshot, statement, transaction
from flowfabric.engine.schedules import (
    backfill_schedule,
    count_schedules,
    create_schedule,
    delete_schedule,
    diff_schedules,
    explain_schedule,
    get_schedule,
    list_schedule_fires,
    list_schedules,
    pause_schedule,
    preview_schedule,
    resume_schedule,
    sync_schedules,
    trigger_schedule,
    update_schedule,
)


class ScheduleOperations:
    """A part of `Engine`, which says how each operation runs."""

    create_schedules = transaction(create_schedule.create_schedules)
    create_schedule = transaction(create_schedule.create_schedule)
    update_schedule = transaction(update_schedule.update_schedule)
    pause_schedule = transaction(pause_schedule.pause_schedule)
    resume_schedule = transaction(resume_schedule.resume_schedule)
    trigger_schedule = transaction(trigger_schedule.trigger_schedule)
    backfill_schedule = transaction(backfill_schedule.backfill_schedule)
    delete_schedule = transaction(delete_schedule.delete_schedule)
    sync_schedules = transaction(sync_schedules.sync_schedules)
    diff_schedules = snapshot(diff_schedules.diff_schedules)
    get_schedule = statement(get_schedule.get_schedule)
    list_schedules = statement(list_schedules.list_schedules)
    count_schedules = statement(count_schedules.count_schedules)
    list_schedule_fires = statement(list_schedule_fires.list_schedule_fires)
    preview_schedule = statement(preview_schedule.preview_schedule)
    explain_schedule = snapshot(explain_schedule.explain_schedule)
