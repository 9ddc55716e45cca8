"""Schedules that an application defines: `@app.schedule`, and the options of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, TypeVar, Unpack

import msgspec

from flowfabric.app.check_call import check_call
from flowfabric.app.task import Call
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.errors import ConfigError, FlowFabricError, invalid_input
from flowfabric.ids import check_is_text
from flowfabric.limits import refuse_merged
from flowfabric.schedules.spec import spec_of
from flowfabric.states import ScheduleSource, ScheduleSpecKind

F = TypeVar("F", bound="Callable[[], Call[Any]]")

_TIMING: Final = ("cron", "tz", "every", "at")
_OWN: Final = ("overlap", "catch_up", "catch_up_window", "jitter", "starts", "until", "runs")
_UNSET: Final = "not-called-yet"


class ScheduleOptions(TypedDict, total=False):
    """When a schedule fires, by one of `cron`, `every` and `at`, and how."""

    cron: str
    """Five fields, or six with seconds first; or @hourly, @daily, @weekly, @monthly, @yearly."""
    tz: str
    """The time zone of `cron`, as Europe/Berlin; UTC if it is not given."""
    every: float | timedelta
    at: datetime
    overlap: str
    """While an earlier execution runs: skip, allow, queue_one, queue_all or cancel_running."""
    catch_up: int
    """How many missed instants are fired after an outage, the newest; 1 if it is not given."""
    catch_up_window: float | timedelta
    """Older instants are not caught up; a day if it is not given."""
    jitter: float | timedelta
    """Each execution is delayed by less than this."""
    starts: datetime
    until: datetime
    runs: int
    """After so many firings the schedule is finished."""
    lane: str
    priority: int
    tags: Mapping[str, str]


def define_schedule(
    name: str,
    call: Call[Any],
    *,
    namespace: str,
    source: ScheduleSource = ScheduleSource.API,
    **options: Unpack[ScheduleOptions],
) -> ScheduleDefinition:
    """The schedule of a call; raises `ValidationError`."""
    check_call(call)
    settings = _settings(name, namespace, source, options)
    return _of_call(settings, call, options)


def redefine_schedule(
    stored: ScheduleDefinition, call: Call[Any] | None, **options: Unpack[ScheduleOptions]
) -> ScheduleDefinition:
    """The stored definition with these options instead of its own; raises `ValidationError`.

    A new `tz` alone is for the stored cron expression.
    """
    given = _checked(options)
    timing = {name: given[name] for name in _TIMING if name in given}
    if timing.keys() == {"tz"}:
        timing["cron"] = stored.spec.cron
    starts = given.get("starts", stored.starts)
    changes = {name: given[name] for name in _OWN if name in given}
    if timing:
        changes["spec"] = spec_of(**timing, starts=starts if "every" in timing else None)
    elif "starts" in given and stored.spec.spec_kind is ScheduleSpecKind.INTERVAL:
        changes["spec"] = msgspec.structs.replace(stored.spec, anchor=starts)
    for option, field in (("lane", "lane_id"), ("priority", "priority"), ("tags", "tags")):
        if option in given:
            changes[field] = given[option]
    settings = msgspec.structs.replace(stored, **changes)
    if call is None:
        return settings
    check_call(call)
    return _of_call(settings, call, options)


class AppSchedule:
    """A schedule of an application; the function says what it executes."""

    def __init__(
        self,
        name: str,
        function: Callable[[], Call[Any]],
        *,
        namespace: str,
        options: ScheduleOptions,
    ) -> None:
        self.name, self._function, self._options = name, function, options
        try:
            self._settings = _settings(name, namespace, ScheduleSource.CODE, options)
        except FlowFabricError as error:
            raise ConfigError("schedule", _shown(name), _detail(error)) from None
        if not callable(function):
            raise ConfigError("schedule", name, "must be a function that returns task.call(...)")

    def definition(self) -> ScheduleDefinition:
        """The schedule, with the call that its function returns; raises `ConfigError`."""
        try:
            call = self._function()
            check_call(call)
            return _of_call(self._settings, call, self._options)
        except Exception as error:
            raise ConfigError("schedule", self.name, _detail(error)) from error


def _settings(
    name: str, namespace: str, source: ScheduleSource, options: ScheduleOptions
) -> ScheduleDefinition:
    """What the options say, without what is executed."""
    given = _checked(options)
    timing = {each: given.get(each) for each in _TIMING}
    starts = given.get("starts") if timing["every"] is not None else None
    return ScheduleDefinition(
        name=name,
        namespace=namespace,
        source=source,
        spec=spec_of(**timing, starts=starts),
        execution_kind=_UNSET,
        lane_id=given.get("lane", "default"),
        priority=given.get("priority", 0),
        tags=given.get("tags", {}),
        **{each: given[each] for each in _OWN if each in given},
    )


def _of_call(
    settings: ScheduleDefinition, call: Call[Any], options: ScheduleOptions
) -> ScheduleDefinition:
    """The settings with what is executed: the options first, then those of the task."""
    task = call.task
    refuse_merged(task.merged, task.kind, "a schedule, which has overlap=")
    return msgspec.structs.replace(
        settings,
        execution_kind=task.kind,
        lane_id=options.get("lane", task.lane),
        input_payload=call.payload,
        payload_encoding=task.encoding,
        priority=options.get("priority", task.priority),
        policy=task.policy,
        required_capabilities=task.requires,
        limit=None if task.limit is None else task.limit.limit.name,
        limit_key=call.limit_key,
    )


def _checked(options: ScheduleOptions) -> dict[str, Any]:
    """The options that are given; raises `ValidationError` for one that is unknown."""
    for name in options:
        if name not in ScheduleOptions.__annotations__:
            known = ", ".join(ScheduleOptions.__annotations__)
            raise invalid_input("option", name, f"is unknown; the options are {known}")
    return {name: value for name, value in options.items() if value is not None}


def _shown(name: object) -> str:
    try:
        return check_is_text(name, field="name") or "name"
    except FlowFabricError:
        return "name"


def _detail(error: Exception) -> str:
    return getattr(error, "detail", None) or f"{type(error).__name__}: {error}"
