"""runnable → active: the one way a lease is given out.

`LEASE_TAKEN` leases the rows of a CTE `taken`: the keys of executions whose row in `ff.ready` this
statement has deleted, `reclaims` (is the lease a reclaim?), `timeout_ms` (how long the attempt may
take; null: as the policy says) and `now_ms`, so that the clock is read once for each row. `leased`
are these rows: each has a row in `ff.lease` under the next epoch, and one lease event is written.
`ff.exec_core` is only read. It is as the deleted row found it, because whatever changes what is
read here replaces that row.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.engine.lifecycle.lease import Lease, LeaseHandleKind
from flowfabric.engine.lifecycle.sql.events import record_lease_event
from flowfabric.engine.lifecycle.sql.wake import WAKE_LEASE
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import AttemptType
from flowfabric.tags import read_tags

LEASE_TAKEN: Final[LiteralString] = (
    """, leased AS MATERIALIZED (   -- under a new epoch; an attempt begins or goes on
    SELECT e.partition_key, e.execution_id, e.route_id, e.flow_id, e.tags, e.priority,
           e.created_at_ms, e.deadline_at_ms, e.lease_epoch + 1 AS lease_epoch,
           %(lease_id)s::uuid AS lease_id, %(worker_instance_id)s::text AS worker_instance_id,
           e.attempt_index + taken.reclaims::integer AS attempt_index,
           CASE WHEN e.attempt_state = 'attempt_interrupted' AND NOT taken.reclaims
                THEN e.attempt_started_at_ms ELSE taken.now_ms END AS attempt_started_at_ms,
           CASE WHEN taken.reclaims THEN 'reclaim' ELSE CASE e.attempt_state
                WHEN 'attempt_interrupted' THEN e.attempt_type
                WHEN 'pending_retry_attempt' THEN 'retry'
                WHEN 'pending_replay_attempt' THEN 'replay'
                ELSE CASE WHEN e.attempt_index > 0 THEN 'restart' ELSE 'initial' END END END
               AS attempt_type,
           greatest(e.total_attempt_count, e.attempt_index + taken.reclaims::integer + 1)
               AS total_attempt_count,
           e.lease_reclaim_count + (e.lease_lost OR taken.reclaims)::integer
               AS lease_reclaim_count,
           taken.now_ms + coalesce(taken.timeout_ms,
                ff.policy_number(
                    e.policy #> '{timeout_policy,attempt_timeout_ms}', 3153600000000))
               AS attempt_timeout_at_ms,
           e.attempt_state IN ('attempt_interrupted', 'pending_replay_attempt')
               AND NOT taken.reclaims AS attempt_recorded,
           e.attempt_state = 'attempt_interrupted' AND NOT taken.reclaims AS goes_on,
           taken.reclaims, e.payload, e.payload_encoding, e.quota_key_id, taken.now_ms
      FROM taken
     CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
           SELECT c.*, b.policy, b.payload, b.payload_encoding
             FROM ff.exec_core c JOIN ff.exec_body b USING (partition_key, execution_id)
            WHERE (c.partition_key, c.execution_id) = (taken.partition_key, taken.execution_id)
           OFFSET 0) AS e
), lease_begun AS (
    INSERT INTO ff.lease (
           partition_key, execution_id, attempt_index, lease_id, lease_epoch, lease_expires_at_ms,
           last_mutation_at_ms, attempt_started_at_ms, attempt_timeout_at_ms, quota_key_id,
           lease_reclaim_count, attempt_recorded, attempt_type, worker_id, worker_instance_id)
    SELECT partition_key, execution_id, attempt_index, lease_id, lease_epoch,
           now_ms + %(ttl_ms)s::bigint, now_ms, attempt_started_at_ms,
           attempt_timeout_at_ms, quota_key_id, lease_reclaim_count, attempt_recorded,
           attempt_type, %(worker_id)s, worker_instance_id
      FROM leased
), lease_recorded AS ("""
    + record_lease_event(
        "leased",
        event_type="CASE WHEN reclaims THEN 'reclaimed' ELSE 'acquired' END",
        at="now_ms",
        wakes=WAKE_LEASE,
    )
    + """)"""
)
"""Follows a CTE `taken`."""

LEASED_ROW: Final[LiteralString] = """
       leased.partition_key, leased.execution_id, leased.flow_id, leased.attempt_index,
       leased.lease_epoch, route.lane_id, route.execution_kind, leased.payload,
       leased.payload_encoding, nullif(leased.tags, '{}') AS tags, leased.attempt_type,
       leased.total_attempt_count, leased.goes_on,
       leased.attempt_timeout_at_ms - leased.now_ms AS attempt_timeout_ms,
       leased.deadline_at_ms - leased.now_ms AS deadline_ms, leased.now_ms AS claimed_at_ms,
       leased.quota_key_id"""
"""The columns of `LeasedRow`, from `leased` and `ff.route route`."""


# Once: an enum looks its members up by Python code.
_ATTEMPT_TYPES: Final = {each.value: each for each in AttemptType}
_FRESH, _RESUMED = LeaseHandleKind.FRESH, LeaseHandleKind.RESUMED
_instant: Final = lru_cache(maxsize=16)(instant)  # the rows of a claim have the same


# The structs with gc=False are made for every execution and never refer to one another: the garbage
# collector need not visit them.
class Claimed(msgspec.Struct, frozen=True, gc=False):
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
    claimed_at: datetime
    """When it was leased, on the clock of the database."""
    flow_id: UUID | None = None
    """The flow that the execution is a member of."""
    quota_key_id: int | None = None
    """The key of the limit whose slot the lease holds."""
    kind: LeaseHandleKind = LeaseHandleKind.FRESH
    """`resumed` if an attempt goes on that was suspended, delayed, or whose lease was lost."""


class LeasedRow(msgspec.Struct, frozen=True, gc=False):
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
    goes_on: bool
    attempt_timeout_ms: int | None
    deadline_ms: int | None
    claimed_at_ms: int
    quota_key_id: int | None


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
        attempt_type=_ATTEMPT_TYPES[row.attempt_type],
        total_attempt_count=row.total_attempt_count,
        attempt_timeout=None if row.attempt_timeout_ms is None else row.attempt_timeout_ms / 1000,
        deadline=None if row.deadline_ms is None else row.deadline_ms / 1000,
        claimed_at=_instant(row.claimed_at_ms),
        flow_id=row.flow_id,
        quota_key_id=row.quota_key_id,
        kind=_RESUMED if row.goes_on else _FRESH,
    )
