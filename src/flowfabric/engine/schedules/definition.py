"""A schedule as its caller defines it: when it fires, what it executes, and how."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar
from uuid import UUID
from zlib import crc32

import msgspec

from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import ExecutionId, check_name, check_type
from flowfabric.instants import check_instant, epoch_ms, instant
from flowfabric.limits import quota_policy_id
from flowfabric.policy import ExecutionPolicy, milliseconds
from flowfabric.schedules.next_after import next_after
from flowfabric.schedules.spec import ScheduleSpec, check_spec
from flowfabric.states import ScheduleOverlap, ScheduleSource, ScheduleSpecKind

NAME_TAG: Final = "ff.schedule"
INSTANT_TAG: Final = "ff.scheduled_at"
MAX_PAYLOAD: Final = 1024 * 1024
MAX_CATCH_UP: Final = 1000
W = TypeVar("W", bound=StrEnum)

_ANY_ID: Final = ExecutionId(0, UUID(int=0))


class ScheduleDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule; valid once it is made, else `ValidationError` names field and value."""

    name: str
    namespace: str = "default"
    spec: ScheduleSpec
    execution_kind: str
    lane_id: str = "default"
    input_payload: bytes = b""
    payload_encoding: str | None = None
    priority: int = 0
    policy: ExecutionPolicy | None = None
    tags: Mapping[str, str] = {}
    required_capabilities: tuple[str, ...] = ()
    limit: str | None = None
    """The limit of the namespace that counts the executions, by its name."""
    limit_key: str | None = None
    """The key that the limit counts them under; None: one for all."""
    overlap: ScheduleOverlap = ScheduleOverlap.SKIP
    catch_up: int = 1
    """How many missed instants are fired when the schedule is looked at again, the newest."""
    catch_up_window: float | timedelta = timedelta(days=1)
    """Missed instants that are older are not fired."""
    jitter: float | timedelta = timedelta()
    """Each execution is delayed by a part of this that depends on name and instant alone."""
    starts: datetime | None = None
    until: datetime | None = None
    runs: int | None = None
    source: ScheduleSource = ScheduleSource.API

    def __post_init__(self) -> None:
        check_name(self.name, field="name")
        check_type(self.spec, ScheduleSpec, field="spec")
        self._keep("overlap", check_word(self.overlap, ScheduleOverlap, field="overlap"))
        self._keep("source", check_word(self.source, ScheduleSource, field="source"))
        _check_count("catch_up", self.catch_up, 0, MAX_CATCH_UP)
        for field in ("catch_up_window", "jitter"):
            self._keep(field, _duration(field, getattr(self, field)))
        if self.starts is not None:
            check_instant(self.starts, field="starts")
        if self.until is not None:
            check_instant(self.until, field="until")
        if self.runs is not None:
            _check_count("runs", self.runs, 1, 2**31 - 1)
        if len(self.input_payload) > MAX_PAYLOAD:
            why = f"input_payload '{len(self.input_payload)} bytes' is over {MAX_PAYLOAD}"
            raise ValidationError("payload_too_large", why)
        self._check_execution()

    def _keep(self, field: str, value: object) -> None:
        msgspec.structs.force_setattr(self, field, value)

    def _check_execution(self) -> None:
        """Raise unless the executions can be created."""
        for tag in (NAME_TAG, INSTANT_TAG):
            if tag in self.tags:
                raise invalid_input("tag", tag, "is set by the schedule")
        checked = NewExecution(
            execution_id=_ANY_ID,
            execution_kind=self.execution_kind,
            lane_id=self.lane_id,
            namespace=self.namespace,
            input_payload=self.input_payload,
            payload_encoding=self.payload_encoding,
            priority=self.priority,
            tags={**self.tags, NAME_TAG: self.name, INSTANT_TAG: ""},
            required_capabilities=self.required_capabilities,
            quota_policy_id=self._quota_policy_id(),
            limit_key=self.limit_key,
            policy=self.policy,
        )
        self._keep("required_capabilities", checked.required_capabilities)

    def _quota_policy_id(self) -> UUID | None:
        """The id of the limit; raises if the executions cannot have it."""
        if self.limit is None:
            return None
        if self.overlap in (ScheduleOverlap.QUEUE_ONE, ScheduleOverlap.QUEUE_ALL):
            why = f"has limit {self.limit!r}, and an execution waits for one of the two alone"
            raise invalid_input("overlap", self.overlap.value, why)
        return quota_policy_id(self.namespace, self.limit)

    def first_after(self, now_ms: int) -> int | None:
        """The first instant after now and not before `starts`; None if it is after `until`."""
        after = now_ms if self.starts is None else max(now_ms, epoch_ms(self.starts) - 1)
        found = next_after(self.spec, after)
        if found is None or (self.until is not None and found > epoch_ms(self.until)):
            return None
        return found

    def anchored(self, now_ms: int) -> ScheduleDefinition:
        """The definition, its interval counted from now if it says nothing else."""
        spec = self.spec
        if spec.spec_kind is not ScheduleSpecKind.INTERVAL or spec.anchor is not None:
            return self
        anchor = self.starts or instant(now_ms)
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(spec, anchor=anchor))

    def facts(self) -> dict[str, Any]:
        """The fields by which a definition in code is compared with a stored one."""
        spec = {name: getattr(self.spec, name) for name in ("cron", "tz", "every", "at")}
        own = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in ("name", "namespace", "spec", "tags", "policy")
        }
        policy = None if self.policy is None else self.policy.as_json().decode()
        return {**spec, **own, "tags": dict(self.tags), "policy": policy}


def check_word(given: object, words: type[W], *, field: str) -> W:
    """The word of an enumeration; raises `ValidationError(invalid_input)` that lists them."""
    try:
        return words(given)
    except ValueError:
        raise invalid_input(field, given, f"is not one of {', '.join(words)}") from None


def _duration(field: str, given: float | timedelta) -> timedelta:
    kept = milliseconds(given, field=field)
    if kept < 0:
        raise invalid_input(field, given, "must not be negative")
    return timedelta(milliseconds=kept)


def _check_count(field: str, given: object, least: int, most: int) -> None:
    if type(given) is not int or not least <= given <= most:
        raise invalid_input(field, given, f"must be a whole number from {least} to {most}")


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """A field that a definition in code has otherwise than the stored one."""

    field: str
    stored: Any
    code: Any

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.stored)} → {_shown(self.code)}"


def differences(stored: ScheduleDefinition, code: ScheduleDefinition) -> list[FieldChange]:
    """The fields that differ, without the anchor of an interval: code knows only `starts`."""
    old, new = stored.facts(), code.facts()
    return [
        FieldChange(field=field, stored=old[field], code=new[field])
        for field in old
        if old[field] != new[field]
    ]


def first_instant(definition: ScheduleDefinition, now_ms: int) -> int:
    """The first instant; raises `ValidationError(invalid_input)` if there is or can be none."""
    check_spec(definition.spec)
    found = definition.first_after(now_ms)
    if found is not None:
        return found
    if definition.spec.at is not None:
        raise invalid_input("at", definition.spec.at.isoformat(), "is in the past")
    if definition.until is not None:
        raise invalid_input("until", definition.until.isoformat(), "leaves no instant")
    raise invalid_input("cron", definition.spec.cron, "never matches again")


def _shown(value: object) -> str:
    match value:
        case bytes():
            return f"{len(value)} bytes, crc {crc32(value):08x}"
        case datetime():
            return value.isoformat()
        case _:
            return str(value)
