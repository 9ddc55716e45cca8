"""The one fence: which callers hold the lease that they pass, and why the others do not.

A fenced statement is `held_leases()`, then `holding()`, then its change to these rows; it answers
the ordinals of the calls that changed something. The change is `end` or `requeue`, which compare
the epoch of `ff.exec_core` once more: whatever ends a lease changes that column, so a row that
another transaction changed first is left alone. Why a call was refused is read afterwards, by
`answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, LiteralString, TypeVar
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.by_key import execution_row, lease_row
from flowfabric.errors import ExecutionNotActive, LeaseExpired, NotFound, Refusal, StaleLease
from flowfabric.ids import attempt_id

D = TypeVar("D")

LEASE_COLUMNS: Final[LiteralString] = """
           l.attempt_index, l.attempt_type, l.attempt_started_at_ms, l.lease_reclaim_count,
           l.attempt_recorded, l.lease_epoch, l.lease_id, l.worker_id, l.worker_instance_id"""

LOCKED: Final[LiteralString] = f""", locked AS MATERIALIZED ( -- those that are held; no end passes
    SELECT held.*, l.partition_key, l.execution_id, l.attempt_index
      FROM held JOIN ff.lease l
        ON {lease_row("held.held_partition", "held.held_execution")}
       AND (l.attempt_index, l.lease_epoch, l.lease_id)
         = (held.held_attempt, held.held_epoch, held.held_lease)
     WHERE l.lease_expires_at_ms > ff.now_ms()
     ORDER BY held.held_partition, held.held_execution, held.ordinal
       FOR KEY SHARE OF l
)"""
"""Follows a CTE `held`, for writes beside the execution, such as entries of its journal.

Renewals go on meanwhile. Whatever ends the lease deletes its row, so the end waits until this
transaction is over, and the next holder reads what this one wrote.
"""

LOCKED_BY_EXECUTION: Final[LiteralString] = f""", locked AS MATERIALIZED ( -- no end passes
    SELECT held.*, l.partition_key, l.execution_id, l.attempt_index
      FROM held
      JOIN ff.exec_core e ON {execution_row("held.held_partition", "held.held_execution")}
       AND e.lease_epoch = held.held_epoch - 1
      JOIN ff.lease l
        ON {lease_row("held.held_partition", "held.held_execution")}
       AND (l.attempt_index, l.lease_epoch, l.lease_id)
         = (held.held_attempt, held.held_epoch, held.held_lease)
     ORDER BY held.held_partition, held.held_execution, held.ordinal
       FOR SHARE OF e
)"""
"""As `LOCKED`, for transactions that see one snapshot (REPEATABLE READ, SERIALIZABLE).

In those no row can be locked that changed since the snapshot, and every renewal changes the lease.
Whatever ends a lease changes the execution, so that row serves as well. A lease whose time has
passed counts as held until it is voided.
"""

LOCKED_COLUMNS: Final[LiteralString] = f"""
           e.partition_key, e.execution_id, l.lease_id IS NOT NULL AS leased,
           e.eligibility_state = 'eligible_now' AS was_eligible,
           e.lifecycle_phase, e.attempt_state,{LEASE_COLUMNS}"""
"""What `end` and `requeue` need of `ff.exec_core e` and, if it is leased, of its lease `l`."""

WITH_LEASE: Final[LiteralString] = f"""LEFT JOIN ff.lease l
        ON {lease_row("e.partition_key", "e.execution_id")} AND l.lease_epoch = e.lease_epoch + 1"""
"""The lease of each `e`. Whatever ends a lease changes `e.lease_epoch`: where `e` had changed
before it was locked, Postgres compares again, and does not find a lease that has ended.
"""

HELD_NOW: Final[LiteralString] = """FROM ff.lease l JOIN ff.exec_core e
        ON (e.partition_key, e.execution_id, e.lease_epoch)
         = (l.partition_key, l.execution_id, l.lease_epoch - 1)"""
"""The leases `l` that have not ended, each with its execution `e`: for sweeps, which lock both."""

DUE_NOW: Final[LiteralString] = f"""FROM due
      JOIN ff.lease l ON {lease_row("due.due_partition", "due.due_execution")}
      JOIN ff.exec_core e ON {execution_row("due.due_partition", "due.due_execution")}
       AND e.lease_epoch = l.lease_epoch - 1"""
"""The leases `l` of the CTE `due` that have not ended, each with its execution `e`."""

LOCK_FREE: Final[LiteralString] = """FOR NO KEY UPDATE OF e SKIP LOCKED
       FOR UPDATE OF l SKIP LOCKED"""
"""Locks both for a sweep that ends the leases, passing over rows in use.

A lease is also in use while its holder records entries: the sweep would wait for them.
"""

LOCKED_BY_ID: Final[LiteralString] = f"""WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), seen AS MATERIALIZED (
    SELECT{LOCKED_COLUMNS}
      FROM named JOIN ff.exec_core e ON {execution_row("named.partition_key", "named.execution_id")}
      {WITH_LEASE}
     ORDER BY named.partition_key, named.execution_id
)"""
"""`WITH seen`: the named executions, for statements without a fence, in the order of all locks.

An earlier statement of the transaction has locked them by `lock_executions`. Only then does this
statement see the lease of a claim that was in progress.
"""

SEEN_COLUMNS: Final[LiteralString] = """ordinal, lifecycle_phase, terminal_outcome, attempt_state,
       attempt_index, lease_epoch, lease_id, delay_until_ms"""
"""The columns of `SeenExecution`."""


def held_leases(arrays: LiteralString = "", names: LiteralString = "") -> LiteralString:
    """`WITH held`: one row for each call, with the lease that its caller passes.

    `arrays` are parameters beside the lease, each cast to an array; `names` their columns.
    """
    more_arrays: LiteralString = f",\n                         {arrays}" if arrays else ""
    more_names: LiteralString = f"\n                 {names}," if names else ""
    return f"""WITH held AS (        -- the leases that the callers pass
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(attempt_index)s::integer[], %(lease_epoch)s::bigint[],
                         %(lease_id)s::uuid[]{more_arrays}) WITH ORDINALITY
        AS held (held_partition, held_execution, held_attempt, held_epoch, held_lease,{more_names}
                 ordinal)
)"""


def holding(names: LiteralString = "") -> LiteralString:
    """The CTE `holding`: the calls whose leases are held, in one order.

    Follows a CTE `held`, of which it keeps `ordinal` and the columns `names`: rows of many columns
    are copied from one CTE to the next.
    """
    more_names: LiteralString = f" {names}," if names else ""
    return f""", holding AS MATERIALIZED ( -- those that are held, in one order
    SELECT held.ordinal,{more_names} l.partition_key, l.execution_id,{LEASE_COLUMNS},
           true AS leased, 'running_attempt' AS attempt_state, ff.now_ms() AS now_ms
      FROM held JOIN ff.lease l
        ON {lease_row("held.held_partition", "held.held_execution")}
       AND (l.attempt_index, l.lease_epoch, l.lease_id)
         = (held.held_attempt, held.held_epoch, held.held_lease)
     WHERE l.lease_expires_at_ms > ff.now_ms()
     ORDER BY held.held_partition, held.held_execution, held.ordinal
)"""


def due_leases(instant: LiteralString) -> LiteralString:
    """`WITH due`: the leases of which the column `instant` has passed, the longest overdue first.

    There is no index on instants, which every renewal would have to change: the table is read page
    by page. Twenty times as many as a sweep moves are enough to pass over those in use.
    """
    return f"""WITH due AS MATERIALIZED (
    SELECT l.partition_key AS due_partition, l.execution_id AS due_execution FROM ff.lease l
     WHERE l.{instant} <= (SELECT ff.now_ms())
     ORDER BY l.{instant} LIMIT 20 * %(limit)s
)"""


def locked_if_mixed(
    source: LiteralString, name: LiteralString, *, ends: LiteralString
) -> LiteralString:
    """`name` are the rows of `source`, which are held; those for which `ends` is true will end.

    Two updates lock one after the other. If some rows end and others are requeued, all are
    therefore locked before, in the order of all locks; else the one update does that.
    """
    return f""", mixed AS (
    SELECT FROM {source}
      JOIN ff.exec_core e ON {execution_row(f"{source}.partition_key", f"{source}.execution_id")}
      JOIN ff.lease l ON {lease_row(f"{source}.partition_key", f"{source}.execution_id")}
     WHERE (SELECT bool_or({ends}) AND NOT bool_and({ends}) FROM {source})
     ORDER BY {source}.partition_key, {source}.execution_id FOR NO KEY UPDATE OF e, l
), {name} AS NOT MATERIALIZED (
    SELECT * FROM {source} WHERE (SELECT count(*) FROM mixed) >= 0
)"""


READ_SEEN: Final[LiteralString] = (
    """
-- lifecycle.read_seen
"""
    + held_leases()
    + f"""
SELECT {SEEN_COLUMNS}
  FROM held LEFT JOIN ff.execution e
    ON (e.partition_key, e.execution_id) = (held.held_partition, held.held_execution)
"""
)


class AppliedCall(msgspec.Struct, frozen=True, gc=False):
    """The call with this number, from 1, changed something."""

    ordinal: int


class SeenExecution(msgspec.Struct, frozen=True):
    """The execution as the call `ordinal` found it; the phase is None if there is no execution."""

    ordinal: int
    lifecycle_phase: str | None
    terminal_outcome: str
    attempt_state: str
    attempt_index: int
    lease_epoch: int
    lease_id: UUID | None
    delay_until_ms: int | None

    def was_ended_by(self, lease: Lease) -> bool:
        """Is this the state in which the holder of `lease` gave it up?"""
        fence = (self.attempt_index, self.lease_epoch, self.lease_id)
        return fence == (lease.attempt_index, lease.lease_epoch, lease.lease_id)


async def answers(
    conn: Connection,
    leases: Sequence[Lease],
    changed: Collection[int],
    *,
    done: Callable[[Lease], D],
    done_before: Callable[[Lease, SeenExecution], D | None] = lambda _lease, _seen: None,
) -> list[D | Refusal]:
    """The answer to each call, in the order given; `changed` are the ordinals of those that held.

    Of several calls with one lease the first decides, and all get its answer. A refused call that
    repeats what the same holder did in an earlier batch is answered by `done_before`; every other
    refused call gets its `Refusal`.
    """
    if len(changed) == len(leases):
        return [done(lease) for lease in leases]
    succeeded = {leases[ordinal - 1] for ordinal in changed}
    holders = {lease.execution_id: lease for lease in succeeded}
    refused = [lease for lease in dict.fromkeys(leases) if lease not in succeeded]
    seen = dict(zip(refused, await read_seen(conn, refused), strict=True))
    collected: list[D | Refusal] = []
    for lease in leases:
        if lease in succeeded:
            collected.append(done(lease))
        else:
            holder = holders.get(lease.execution_id)
            # Another call of this batch changed the row: it is answered as it was before.
            found = seen[lease] if holder is None else _as_held(holder)
            before = None if found.lifecycle_phase is None else done_before(lease, found)
            collected.append(refusal(lease, found) if before is None else before)
    return collected


async def read_seen(conn: Connection, leases: Sequence[Lease]) -> list[SeenExecution]:
    """The executions of these leases as they are now, in the order given."""
    if not leases:
        return []
    rows = await fetch_all(conn, READ_SEEN, SeenExecution, **fence_columns(leases))
    return sorted(rows, key=lambda row: row.ordinal)


def _as_held(holder: Lease) -> SeenExecution:
    """The execution as it was when `holder` was found to hold it."""
    return SeenExecution(
        ordinal=1,
        lifecycle_phase="active",
        terminal_outcome="none",
        attempt_state="running_attempt",
        attempt_index=holder.attempt_index,
        lease_epoch=holder.lease_epoch,
        lease_id=holder.lease_id,
        delay_until_ms=None,
    )


def refusal(lease: Lease, seen: SeenExecution) -> Refusal:
    """The first that applies: missing, not active, another attempt, another lease, expired."""
    if seen.lifecycle_phase is None:
        return NotFound("execution", lease.execution_id)
    if seen.lifecycle_phase != "active":
        return ExecutionNotActive(
            lease.execution_id,
            lifecycle_phase=seen.lifecycle_phase,
            terminal_outcome=seen.terminal_outcome,
            lease_epoch=seen.lease_epoch,
            attempt_id=attempt_id(lease.execution_id, seen.attempt_index),
        )
    if lease.attempt_index > seen.attempt_index:
        return NotFound("attempt", f"{lease.attempt_index} of {lease.execution_id}")
    if (
        lease.attempt_index != seen.attempt_index
        or lease.lease_epoch != seen.lease_epoch
        or lease.lease_id != seen.lease_id
    ):
        return StaleLease(lease.execution_id, held=lease.lease_epoch, current=seen.lease_epoch)
    return LeaseExpired(lease.execution_id, lease_epoch=lease.lease_epoch)
