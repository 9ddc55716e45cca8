"""runnable → active: the best claimable executions are leased to this worker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final, LiteralString
from uuid import UUID, uuid4

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, check_lane, check_worker_name
from flowfabric.policy import check_capabilities, milliseconds
from flowfabric.states import AttemptType

MAX_BATCH: Final = 1000

CLAIM: Final[LiteralString] = """
-- lifecycle.claim
WITH found AS (       -- the best that this worker can run, locked
    SELECT * FROM ff.claimable(%(lanes)s::text[], %(namespace)s, %(kinds)s::text[],
                               %(capabilities)s::text[], %(limit)s)
), leased AS (
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'active', eligibility_state = 'not_applicable',
           blocking_reason = 'none', blocking_detail = NULL, attempt_state = 'running_attempt',
           resume_pending = false, lease_epoch = e.lease_epoch + 1, lease_id = %(lease_id)s,
           worker_id = %(worker_id)s, worker_instance_id = %(worker_instance_id)s,
           lease_expires_at_ms = ff.now_ms() + %(ttl_ms)s::bigint,
           last_mutation_at_ms = ff.now_ms(),
           started_at_ms = coalesce(e.started_at_ms, ff.now_ms()),
           attempt_started_at_ms = CASE e.attempt_state WHEN 'attempt_interrupted'
                THEN e.attempt_started_at_ms ELSE ff.now_ms() END,
           attempt_type = CASE e.attempt_state
                WHEN 'attempt_interrupted' THEN e.attempt_type
                WHEN 'pending_retry_attempt' THEN 'retry'
                WHEN 'pending_replay_attempt' THEN 'replay' ELSE 'initial' END,
           total_attempt_count = e.total_attempt_count
                + (e.attempt_state <> 'attempt_interrupted')::integer,
           lease_reclaim_count = e.lease_reclaim_count + e.lease_lost::integer, lease_lost = false,
           attempt_timeout_at_ms = ff.now_ms()
                + (body.policy #>> '{timeout_policy,attempt_timeout_ms}')::bigint
      FROM found JOIN ff.exec_body body USING (partition_key, execution_id)
     WHERE (e.partition_key, e.execution_id) = (found.partition_key, found.execution_id)
 RETURNING e.partition_key, e.execution_id, e.route_id, e.attempt_index, e.lease_epoch, e.tags,
           e.attempt_type, e.priority, e.created_at_ms, e.attempt_timeout_at_ms, e.deadline_at_ms,
           e.total_attempt_count, body.payload, body.payload_encoding
), told AS (
    INSERT INTO ff.lease_event (
           execution_id, lease_id, route_id, lease_epoch, occurred_at_ms, attempt_index,
           partition_key, event_type, worker_instance_id, tags)
    SELECT execution_id, %(lease_id)s, route_id, lease_epoch, ff.now_ms(), attempt_index,
           partition_key, 'acquired', %(worker_instance_id)s, nullif(tags, '{}')
      FROM leased
)
SELECT leased.partition_key, leased.execution_id, leased.attempt_index, leased.lease_epoch,
       route.lane_id, route.execution_kind, leased.payload, leased.payload_encoding,
       nullif(leased.tags, '{}') AS tags, leased.attempt_type, leased.total_attempt_count,
       leased.attempt_timeout_at_ms - ff.now_ms() AS attempt_timeout_ms,
       leased.deadline_at_ms - ff.now_ms() AS deadline_ms
  FROM leased JOIN ff.route route USING (route_id)
 ORDER BY leased.priority DESC, leased.created_at_ms, leased.execution_id
"""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that this worker holds, with what is needed to run it."""

    lease: Lease
    lane_id: str
    execution_kind: str
    input_payload: bytes
    payload_encoding: str | None
    tags: dict[str, str]
    attempt_type: AttemptType
    total_attempt_count: int
    attempt_timeout: float | None
    """Seconds that the attempt may take; the engine ends it then."""
    deadline: float | None
    """Seconds until the execution expires."""


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    attempt_index: int
    lease_epoch: int
    lane_id: str
    execution_kind: str
    payload: bytes
    payload_encoding: str | None
    tags: str | None
    attempt_type: str
    total_attempt_count: int
    attempt_timeout_ms: int | None
    deadline_ms: int | None


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """Who claims, and what it can run; checked once, when it is made."""

    worker_id: str
    worker_instance_id: str
    lanes: tuple[str, ...]
    namespace: str = "default"
    kinds: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_worker_name(self.worker_id, field="worker_id")
        check_worker_name(self.worker_instance_id, field="worker_instance_id")
        if not self.lanes:
            raise invalid_input("lanes", list(self.lanes), "must name at least one lane")
        for lane in self.lanes:
            check_lane(lane)
        check_capabilities(self.capabilities, side="worker")


async def claim(
    conn: Connection, claimant: Claimant, *, ttl: float | timedelta, limit: int = 1
) -> list[Claimed]:
    """Lease at most `limit` executions: highest priority first, then the oldest.

    Nothing claimable is an empty list. Two claimers never receive the same execution. What the
    claimant cannot run (lane, kind, capabilities, namespace) neither hides nor slows what it can.
    """
    if not 1 <= limit <= MAX_BATCH:
        raise invalid_input("limit", limit, f"must be 1 to {MAX_BATCH}")
    if milliseconds(ttl) < 1:
        raise invalid_input("ttl", ttl, "must be positive")
    lease_id = uuid4()
    rows = await fetch_all(
        conn,
        CLAIM,
        _Row,
        lanes=_array(claimant.lanes),
        kinds=None if claimant.kinds is None else _array(claimant.kinds),
        capabilities=_array(claimant.capabilities),
        namespace=claimant.namespace,
        worker_id=claimant.worker_id,
        worker_instance_id=claimant.worker_instance_id,
        lease_id=lease_id,
        ttl_ms=milliseconds(ttl),
        limit=limit,
    )
    return [_claimed(row, lease_id) for row in rows]


def _array(values: Collection[str]) -> Sequence[str]:
    return list(values)


def _claimed(row: _Row, lease_id: UUID) -> Claimed:
    execution_id = ExecutionId(row.partition_key, row.execution_id)
    return Claimed(
        lease=Lease(execution_id, row.attempt_index, row.lease_epoch, lease_id),
        lane_id=row.lane_id,
        execution_kind=row.execution_kind,
        input_payload=row.payload,
        payload_encoding=row.payload_encoding,
        tags={} if row.tags is None else msgspec.json.decode(row.tags, type=dict[str, str]),
        attempt_type=AttemptType(row.attempt_type),
        total_attempt_count=row.total_attempt_count,
        attempt_timeout=None if row.attempt_timeout_ms is None else row.attempt_timeout_ms / 1000,
        deadline=None if row.deadline_ms is None else row.deadline_ms / 1000,
    )
