"""A schedule as it is stored: its definition, its state, and what it has done so far."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe, fetch_one
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.errors import NotFound, ValidationError
from flowfabric.ids import ExecutionId, check_name, key_partition
from flowfabric.instants import epoch_ms, instant
from flowfabric.policy import ExecutionPolicy, milliseconds
from flowfabric.schedules.spec import ScheduleSpec
from flowfabric.states import ScheduleOverlap, ScheduleSource, ScheduleSpecKind, ScheduleState
from flowfabric.tags import read_tags

SCHEDULE_COLUMNS: Final[
    LiteralString
] = """s.partition_key, s.namespace, s.name, s.spec_kind, s.cron,
       s.tz, s.every_ms, s.anchor_ms, s.at_ms, s.execution_kind, s.lane_id, s.payload,
       s.payload_encoding, s.priority, s.policy::text AS policy, s.tags::text AS tags,
       s.required_capabilities, s.limit_name, s.limit_key, s.overlap, s.catch_up,
       s.catch_up_window_ms, s.jitter_ms,
       s.starts_at_ms, s.until_ms, s.runs, s.source, s.runs_left, s.next_fire_at_ms,
       s.last_fire_at_ms, s.fired, s.skipped, s.missed, s.state, s.state_by, s.state_reason,
       s.state_changed_at_ms, s.created_at_ms, s.created_by, s.revision, s.edited_by,
       s.latest_partitions, s.latest_ids, s.queued, ff.now_ms() AS now_ms"""

READ_SCHEDULES: Final[LiteralString] = f"""
-- schedules.read_schedules
SELECT {SCHEDULE_COLUMNS}
  FROM unnest(%(partition_key)s::smallint[], %(namespace)s::text[], %(name)s::text[])
       AS named (partition_key, namespace, name)
  JOIN ff.schedule s USING (partition_key, namespace, name)
"""

LOCK_SCHEDULE: Final[LiteralString] = f"""
-- schedules.lock_schedule
SELECT {SCHEDULE_COLUMNS}
  FROM ff.schedule s
 WHERE (s.partition_key, s.namespace, s.name) = (%(partition_key)s, %(namespace)s, %(name)s)
   FOR UPDATE
"""

READ_NOW: Final[LiteralString] = """
-- schedules.read_now
SELECT ff.now_ms() AS now_ms
"""

# The definition as one JSON object per schedule: the columns of a batch would be thirty arrays.
DEFINED: Final[LiteralString] = """jsonb_to_recordset(%(rows)s::text::jsonb) AS g (
           partition_key smallint, namespace text, name text, spec_kind text, cron text, tz text,
           every_ms bigint, anchor_ms bigint, at_ms bigint, execution_kind text, lane_id text,
           payload text, payload_encoding text, priority integer, policy jsonb, tags jsonb,
           required_capabilities text[], limit_name text, limit_key text, overlap text,
           catch_up integer,
           catch_up_window_ms bigint, jitter_ms bigint, starts_at_ms bigint, until_ms bigint,
           runs integer, next_fire_at_ms bigint, source text)"""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, its state, and what it has done so far."""

    definition: ScheduleDefinition
    state: ScheduleState
    state_by: str | None
    state_reason: str | None
    state_changed_at: datetime | None
    next_fire_at: datetime | None
    last_fire_at: datetime | None
    fired: int
    skipped: int
    missed: int
    runs_left: int | None
    latest: list[ExecutionId]
    """Its last executions, the oldest first."""
    created_at: datetime
    created_by: str
    revision: int
    edited_by: str | None = None
    """Who changed a schedule from code by hand; None: it is as code defines it."""

    @property
    def name(self) -> str:
        return self.definition.name


class StoredSchedule(msgspec.Struct, frozen=True):
    """One row of `ff.schedule`."""

    partition_key: int
    namespace: str
    name: str
    spec_kind: str
    cron: str | None
    tz: str
    every_ms: int | None
    anchor_ms: int | None
    at_ms: int | None
    execution_kind: str
    lane_id: str
    payload: bytes
    payload_encoding: str | None
    priority: int
    policy: str | None
    tags: str
    required_capabilities: list[str]
    limit_name: str | None
    limit_key: str | None
    overlap: str
    catch_up: int
    catch_up_window_ms: int
    jitter_ms: int
    starts_at_ms: int | None
    until_ms: int | None
    runs: int | None
    source: str
    runs_left: int | None
    next_fire_at_ms: int | None
    last_fire_at_ms: int | None
    fired: int
    skipped: int
    missed: int
    state: str
    state_by: str | None
    state_reason: str | None
    state_changed_at_ms: int | None
    created_at_ms: int
    created_by: str
    revision: int
    edited_by: str | None
    latest_partitions: list[int]
    latest_ids: list[UUID]
    queued: bool
    now_ms: int
    """When the row was read, on the database's clock."""

    @property
    def spec(self) -> ScheduleSpec:
        return ScheduleSpec(
            spec_kind=ScheduleSpecKind(self.spec_kind),
            cron=self.cron,
            tz=self.tz,
            every=None if self.every_ms is None else timedelta(milliseconds=self.every_ms),
            anchor=instant(self.anchor_ms),
            at=instant(self.at_ms),
        )

    @property
    def definition(self) -> ScheduleDefinition:
        return ScheduleDefinition(
            name=self.name,
            namespace=self.namespace,
            spec=self.spec,
            execution_kind=self.execution_kind,
            lane_id=self.lane_id,
            input_payload=self.payload,
            payload_encoding=self.payload_encoding,
            priority=self.priority,
            policy=read_policy(self.policy),
            tags=read_tags(self.tags),
            required_capabilities=tuple(self.required_capabilities),
            limit=self.limit_name,
            limit_key=self.limit_key,
            overlap=ScheduleOverlap(self.overlap),
            catch_up=self.catch_up,
            catch_up_window=timedelta(milliseconds=self.catch_up_window_ms),
            jitter=timedelta(milliseconds=self.jitter_ms),
            starts=instant(self.starts_at_ms),
            until=instant(self.until_ms),
            runs=self.runs,
            source=ScheduleSource(self.source),
        )

    @property
    def latest(self) -> list[ExecutionId]:
        pairs = zip(self.latest_partitions, self.latest_ids, strict=True)
        return [ExecutionId(partition, each) for partition, each in pairs]

    def schedule(self) -> Schedule:
        return Schedule(
            definition=self.definition,
            state=ScheduleState(self.state),
            state_by=self.state_by,
            state_reason=self.state_reason,
            state_changed_at=instant(self.state_changed_at_ms),
            next_fire_at=instant(self.next_fire_at_ms),
            last_fire_at=instant(self.last_fire_at_ms),
            fired=self.fired,
            skipped=self.skipped,
            missed=self.missed,
            runs_left=self.runs_left,
            latest=self.latest,
            created_at=instant(self.created_at_ms),
            created_by=self.created_by,
            revision=self.revision,
            edited_by=self.edited_by,
        )


class _Now(msgspec.Struct, frozen=True):
    now_ms: int


async def read_now(conn: Connection) -> int:
    """The database's clock."""
    return (await fetch_one(conn, READ_NOW, _Now)).now_ms


async def read_schedules(
    conn: Connection, namespace: str, names: Sequence[str], *, partitions: int
) -> dict[str, StoredSchedule]:
    """The schedules of these names that exist, by name."""
    columns = {
        "partition_key": [key_partition(namespace, name, partitions) for name in names],
        "namespace": [namespace] * len(names),
        "name": list(names),
    }
    rows = await fetch_all(conn, READ_SCHEDULES, StoredSchedule, **columns)
    return {row.name: row for row in rows}


async def lock_schedule(
    conn: Connection, namespace: str, name: str, *, partitions: int
) -> StoredSchedule:
    """The schedule, locked until the transaction ends; raises `NotFound`."""
    key = schedule_key(namespace, name, partitions)
    locked = await fetch_maybe(conn, LOCK_SCHEDULE, StoredSchedule, **key)
    if locked is None:
        raise NotFound("schedule", name)
    return locked


def schedule_key(namespace: str, name: str, partitions: int) -> dict[str, Any]:
    """The key of a schedule as the parameters of a statement; raises `ValidationError`."""
    check_name(namespace, field="namespace")
    check_name(name, field="name")
    partition = key_partition(namespace, name, partitions)
    return {"partition_key": partition, "namespace": namespace, "name": name}


def defined_row(
    definition: ScheduleDefinition, next_fire_at_ms: int | None, *, partitions: int
) -> dict[str, Any]:
    """The definition as one JSON object of `DEFINED`."""
    spec = definition.spec
    policy = definition.policy
    return {
        **schedule_key(definition.namespace, definition.name, partitions),
        "spec_kind": spec.spec_kind.value,
        "cron": spec.cron,
        "tz": spec.tz,
        "every_ms": None if spec.every is None else milliseconds(spec.every),
        "anchor_ms": _ms(spec.anchor),
        "at_ms": _ms(spec.at),
        "execution_kind": definition.execution_kind,
        "lane_id": definition.lane_id,
        "payload": base64.b64encode(definition.input_payload).decode(),
        "payload_encoding": definition.payload_encoding,
        "priority": definition.priority,
        "policy": None if policy is None else msgspec.Raw(policy.as_json()),
        "tags": dict(definition.tags),
        "required_capabilities": list(definition.required_capabilities),
        "limit_name": definition.limit,
        "limit_key": definition.limit_key,
        "overlap": definition.overlap.value,
        "catch_up": definition.catch_up,
        "catch_up_window_ms": milliseconds(definition.catch_up_window),
        "jitter_ms": milliseconds(definition.jitter),
        "starts_at_ms": _ms(definition.starts),
        "until_ms": _ms(definition.until),
        "runs": definition.runs,
        "next_fire_at_ms": next_fire_at_ms,
        "source": definition.source.value,
    }


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else epoch_ms(moment)


def json_rows(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as the parameter of `jsonb_to_recordset`."""
    return msgspec.json.encode(rows).decode()


@lru_cache(maxsize=1024)
def read_policy(stored: str | None) -> ExecutionPolicy | None:
    """The stored policy; raises `ValidationError(corruption)`."""
    if stored is None:
        return None
    try:
        return ExecutionPolicy.parse(msgspec.json.decode(stored))
    except ValidationError as error:
        raise ValidationError("corruption", f"schedule: policy: {error.detail}") from None
