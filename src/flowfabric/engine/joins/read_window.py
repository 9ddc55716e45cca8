"""How far the children of one call have come of which each has a wait of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.reopen_join import reopen_join
from flowfabric.engine.lifecycle.ensure_parent_flow import ParentFlow, ensure_parent_flow
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import NonDeterministicReplay
from flowfabric.ids import ExecutionId
from flowfabric.states import GroupState

READ_WINDOW: Final[LiteralString] = """
-- joins.read_window
SELECT g.downstream_eid AS wait, g.group_state, e.upstream_eid AS child,
       (SELECT p.replay_count > 0 FROM ff.exec_core p
         WHERE (p.partition_key, p.execution_id) = (g.partition_key, g.wakes)) AS replayed
  FROM ff.edge_group g JOIN ff.edge e USING (partition_key, downstream_eid)
 WHERE g.partition_key = %(partition_key)s AND g.downstream_eid = ANY (%(wait)s::uuid[])
 ORDER BY g.fired_at_ms, e.resolved_event_id
"""


class ChildWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The children that were spawned; who is in none of these was not."""

    running: frozenset[ExecutionId] = frozenset()
    succeeded: frozenset[ExecutionId] = frozenset()
    lost: tuple[ExecutionId, ...] = ()
    """Who ended otherwise, in the order in which they did."""


class _Row(msgspec.Struct, frozen=True):
    wait: UUID
    group_state: str
    child: UUID
    replayed: bool


async def read_window(
    conn: Connection, lease: Lease, waits: Mapping[UUID, ExecutionId]
) -> ChildWindow:
    """The children as they stand, given by their waits; needs a transaction.

    For a parent that was replayed it first looks again at children that were replayed too or were
    cancelled with the parent. Raises `NonDeterministicReplay` where a wait is for somebody else,
    and the `Refusal` of a lease that is not held.
    """
    home = lease.execution_id.partition_key
    asked = {"partition_key": home, "wait": list(waits)}
    rows = await fetch_all(conn, READ_WINDOW, _Row, **asked)
    if rows and rows[0].replayed and await _reopened(conn, lease, rows):
        rows = await fetch_all(conn, READ_WINDOW, _Row, **asked)
    for row in rows:
        if row.child != waits[row.wait].uuid:
            raise NonDeterministicReplay(
                lease.execution_id,
                before=f"child {ExecutionId(home, row.child)}",
                now=f"{waits[row.wait]} at its place",
            )

    def those(state: GroupState) -> list[ExecutionId]:
        return [ExecutionId(home, row.child) for row in rows if row.group_state == state]

    return ChildWindow(
        running=frozenset(those(GroupState.PENDING)),
        succeeded=frozenset(those(GroupState.SATISFIED)),
        lost=tuple(those(GroupState.IMPOSSIBLE)),
    )


async def _reopened(conn: Connection, lease: Lease, rows: Sequence[_Row]) -> bool:
    """Waits that came to no good end are judged anew; True if there are such."""
    unsatisfied = sorted(row.wait for row in rows if row.group_state != GroupState.SATISFIED)
    for wait in unsatisfied:
        await reopen_join(conn, ExecutionId(lease.execution_id.partition_key, wait))
    if unsatisfied:
        answer = await ensure_parent_flow(conn, lease, None)
        if not isinstance(answer, ParentFlow):
            raise answer
    return bool(unsatisfied)
