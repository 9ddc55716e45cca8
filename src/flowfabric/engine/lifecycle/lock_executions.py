"""Executions are locked: no other transaction moves them until this one ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.visible_executions import VISIBLE
from flowfabric.ids import ExecutionId, attempt_id, id_columns

LOCK_EXECUTIONS: Final[LiteralString] = """
-- lifecycle.lock_executions
SELECT partition_key, execution_id
  FROM ff.lock_executions(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                          %(pass_over_locked)s, %(with_leases)s)
"""

# A row of another namespace is not even waited for: its holder would be told by the time.
LOCK_VISIBLE: Final[LiteralString] = f"""
-- lifecycle.lock_executions: of these namespaces only
WITH visible AS (
    SELECT array_agg(e.partition_key) AS partitions, array_agg(e.execution_id) AS ids{VISIBLE})
SELECT locked.partition_key, locked.execution_id
  FROM visible, ff.lock_executions(visible.partitions, visible.ids) AS locked
"""

READ_LOCKED: Final[LiteralString] = """
-- lifecycle.lock_and_read
SELECT e.partition_key, e.execution_id, e.flow_id, e.lifecycle_phase, e.eligibility_state,
       e.blocking_reason, e.terminal_outcome, e.public_state, e.priority, e.attempt_index,
       e.replay_count, e.lease_epoch, e.lease_id, e.worker_instance_id,
       ff.replay_cap(e.policy) AS max_replay_count, r.lane_id,
       coalesce((SELECT l.lane_state FROM ff.lane_registry l WHERE l.lane_id = r.lane_id),
                'active') AS lane_state,
       (SELECT format('{fp:%%s}:%%s', k.partition_key, k.execution_id)
          FROM ff.exec_idempotency k
         WHERE (k.partition_key, k.namespace, k.idempotency_key)
             = (e.partition_key, r.namespace, e.idempotency_key)
           AND k.scope <> 'window' AND k.execution_id <> e.execution_id
           AND ff.key_stands(k.partition_key, k.execution_id, k.scope)) AS key_holder,
       e.idempotency_key, e.changed_at_ms
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT x.*, b.policy, b.idempotency_key,
              greatest(c.last_mutation_at_ms,
                       CASE WHEN x.leased THEN x.attempt_started_at_ms END) AS changed_at_ms
         FROM ff.execution x JOIN ff.exec_body b USING (partition_key, execution_id)
         JOIN ff.exec_core c USING (partition_key, execution_id)
        WHERE (x.partition_key, x.execution_id) = (named.partition_key, named.execution_id)
       OFFSET 0) AS e
  JOIN ff.route r USING (route_id)
"""


class LockedExecution(msgspec.Struct, frozen=True):
    """The locked row, as far as the checks of an operator look at it."""

    partition_key: int
    execution_id: UUID
    flow_id: UUID | None
    lifecycle_phase: str
    eligibility_state: str
    blocking_reason: str
    terminal_outcome: str
    public_state: str
    priority: int
    attempt_index: int
    replay_count: int
    lease_epoch: int
    lease_id: UUID | None
    worker_instance_id: str | None
    max_replay_count: int
    lane_id: str
    lane_state: str
    key_holder: str | None = None
    """Another execution that has its unique key now."""
    idempotency_key: str | None = None
    changed_at_ms: int = 0
    """When it last changed, renewals of its lease apart."""

    @property
    def id(self) -> ExecutionId:
        return ExecutionId(self.partition_key, self.execution_id)

    @property
    def attempt_id(self) -> UUID:
        """The id of the current or last attempt."""
        return attempt_id(self.id, self.attempt_index)

    @property
    def status(self) -> str:
        """What holds the execution back if something does, else its public state."""
        blocked = self.eligibility_state.startswith("blocked_by_")
        return self.eligibility_state if blocked else self.public_state


class _Locked(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def lock_executions(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    pass_over_locked: bool = False,
    with_leases: bool = False,
) -> list[ExecutionId]:
    """The executions are locked; what a later statement of the transaction sees stays true.

    Those that exist, by id; with `pass_over_locked` without those that another transaction has
    locked, which are waited for otherwise. Renewals and reports of progress go on unless the
    executions are locked `with_leases`.
    """
    rows = await fetch_all(
        conn,
        LOCK_EXECUTIONS,
        _Locked,
        pass_over_locked=pass_over_locked,
        with_leases=with_leases,
        **id_columns(executions),
    )
    return [ExecutionId(row.partition_key, row.execution_id) for row in rows]


async def lock_visible(
    conn: Connection, executions: Sequence[ExecutionId], namespaces: Sequence[str]
) -> list[ExecutionId]:
    """As `lock_executions`, for those of the executions that are in one of the namespaces."""
    rows = await fetch_all(
        conn, LOCK_VISIBLE, _Locked, namespaces=list(namespaces), **id_columns(executions)
    )
    return [ExecutionId(row.partition_key, row.execution_id) for row in rows]


async def lock_and_read(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    namespaces: Sequence[str] | None = None,
) -> dict[ExecutionId, LockedExecution]:
    """The executions are locked; each row as it is under its lock, without those that are gone.

    An execution that was created after the others were locked is not locked, and left out. So is
    one that is in none of the namespaces, if these are given.
    """
    if namespaces is None:
        locked = await lock_executions(conn, executions)
    else:
        locked = await lock_visible(conn, executions, namespaces)
    rows = await fetch_all(conn, READ_LOCKED, LockedExecution, **id_columns(locked))
    return {row.id: row for row in rows}
