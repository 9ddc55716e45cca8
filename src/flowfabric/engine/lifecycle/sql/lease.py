"""runnable → active: the one way a lease is given out.

`LEASE_FOUND` leases the rows of a CTE `found`: their keys, `reclaims` (is the lease a reclaim?) and
`timeout_ms` (how long the attempt may take; null: as the policy says). `leased` are these rows: the
execution is active under a new epoch, and one lease event is written.

The snapshot of the statement may be older than the lock that `found` took, and show the row as
delayed or ended. Postgres makes and checks the new row from that old version first, and then again
from the newest. So every column that is bound to the phase is set, also where it has that value
already.
"""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.sql.events import record_lease_event
from flowfabric.engine.lifecycle.sql.wake import WAKE_LEASE
from flowfabric.ids import ExecutionId
from flowfabric.states import AttemptType
from flowfabric.tags import read_tags

LEASE_FOUND: Final[LiteralString] = (
    """, leased AS (         -- under a new epoch; an attempt begins or goes on
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'active', eligibility_state = 'not_applicable',
           blocking_reason = 'none', blocking_detail = NULL, attempt_state = 'running_attempt',
           terminal_outcome = 'none', terminal_at_ms = NULL, delay_until_ms = NULL,
           resume_pending = false, lease_epoch = e.lease_epoch + 1, lease_id = %(lease_id)s,
           worker_id = %(worker_id)s, worker_instance_id = %(worker_instance_id)s,
           lease_expires_at_ms = ff.now_ms() + %(ttl_ms)s::bigint,
           last_mutation_at_ms = ff.now_ms(),
           started_at_ms = coalesce(e.started_at_ms, ff.now_ms()),
           attempt_index = e.attempt_index + found.reclaims::integer,
           attempt_started_at_ms = CASE
                WHEN e.attempt_state = 'attempt_interrupted' AND NOT found.reclaims
                THEN e.attempt_started_at_ms ELSE ff.now_ms() END,
           attempt_type = CASE WHEN found.reclaims THEN 'reclaim' ELSE CASE e.attempt_state
                WHEN 'attempt_interrupted' THEN e.attempt_type
                WHEN 'pending_retry_attempt' THEN 'retry'
                WHEN 'pending_replay_attempt' THEN 'replay' ELSE 'initial' END END,
           total_attempt_count = greatest(
                e.total_attempt_count, e.attempt_index + found.reclaims::integer + 1),
           lease_reclaim_count = e.lease_reclaim_count + (e.lease_lost OR found.reclaims)::integer,
           lease_lost = false,
           attempt_timeout_at_ms = ff.now_ms() + coalesce(found.timeout_ms,
                ff.policy_number(
                    body.policy #> '{timeout_policy,attempt_timeout_ms}', 3153600000000))
      FROM found JOIN ff.exec_body body USING (partition_key, execution_id)
     WHERE (e.partition_key, e.execution_id) = (found.partition_key, found.execution_id)
 RETURNING e.partition_key, e.execution_id, e.route_id, e.flow_id, e.attempt_index,
           e.lease_epoch, e.lease_id, e.worker_instance_id, e.tags, e.attempt_type,
           e.priority, e.created_at_ms, e.attempt_timeout_at_ms, e.deadline_at_ms,
           e.total_attempt_count, found.reclaims, body.payload, body.payload_encoding
), lease_recorded AS ("""
    + record_lease_event(
        "leased",
        event_type="CASE WHEN reclaims THEN 'reclaimed' ELSE 'acquired' END",
        wakes=WAKE_LEASE,
    )
    + """)"""
)
"""Follows a CTE `found`."""

LEASED_ROW: Final[LiteralString] = """
       leased.partition_key, leased.execution_id, leased.flow_id, leased.attempt_index,
       leased.lease_epoch, route.lane_id, route.execution_kind, leased.payload,
       leased.payload_encoding, nullif(leased.tags, '{}') AS tags, leased.attempt_type,
       leased.total_attempt_count,
       leased.attempt_timeout_at_ms - ff.now_ms() AS attempt_timeout_ms,
       leased.deadline_at_ms - ff.now_ms() AS deadline_ms"""
"""The columns of `LeasedRow`, from `leased` and `ff.route route`."""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that this worker has leased, with what is needed to run it."""

    lease: Lease
    lane_id: str
    execution_kind: str
    input_payload: bytes
    payload_encoding: str | None
    tags: dict[str, str]
    attempt_type: AttemptType
    total_attempt_count: int
    attempt_timeout: float | None
    """Seconds that the attempt may take; the engine ends the attempt then."""
    deadline: float | None
    """Seconds until the execution expires."""
    flow_id: UUID | None = None
    """The flow that the execution is a member of."""


class LeasedRow(msgspec.Struct, frozen=True):
    """One answer row of a leasing statement."""

    partition_key: int
    execution_id: UUID
    flow_id: UUID | None
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


def claimed(row: LeasedRow, lease_id: UUID) -> Claimed:
    """The row as its holder sees it."""
    execution_id = ExecutionId(row.partition_key, row.execution_id)
    return Claimed(
        lease=Lease(execution_id, row.attempt_index, row.lease_epoch, lease_id),
        lane_id=row.lane_id,
        execution_kind=row.execution_kind,
        input_payload=row.payload,
        payload_encoding=row.payload_encoding,
        tags=read_tags(row.tags),
        attempt_type=AttemptType(row.attempt_type),
        total_attempt_count=row.total_attempt_count,
        attempt_timeout=None if row.attempt_timeout_ms is None else row.attempt_timeout_ms / 1000,
        deadline=None if row.deadline_ms is None else row.deadline_ms / 1000,
        flow_id=row.flow_id,
    )
