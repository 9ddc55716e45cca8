"""The children of one call that have a join each: which run, which have ended and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.children import require_lease
from flowfabric.engine.joins.reopen_join import reopen_join
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import NonDeterministicReplay
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.states import GroupState

READ_WINDOW: Final[LiteralString] = """
-- joins.read_window
SELECT g.group_id, g.group_state, e.upstream_eid AS child,
       (SELECT p.replay_count > 0 FROM ff.exec_core p
         WHERE (p.partition_key, p.execution_id) = (g.partition_key, g.waiter_eid)) AS replayed
  FROM ff.edge_group g JOIN ff.edge e USING (partition_key, group_id)
 WHERE g.partition_key = %(partition_key)s AND g.group_id = ANY (%(group_id)s::uuid[])
 ORDER BY g.fired_at_ms, e.resolved_event_id
"""


class ChildWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The children that were spawned; a child in none of these was not."""

    running: frozenset[ExecutionId] = frozenset()
    succeeded: frozenset[ExecutionId] = frozenset()
    lost: tuple[ExecutionId, ...] = ()
    """The children that ended otherwise, in that order."""


class _Row(msgspec.Struct, frozen=True):
    group_id: UUID
    group_state: str
    child: UUID
    replayed: bool


async def read_window(
    conn: Connection, lease: Lease, groups: Mapping[GroupId, ExecutionId]
) -> ChildWindow:
    """The children as they are now, each given with its join; needs a transaction.

    For a parent that was replayed, children that were replayed too or were cancelled with the
    parent are counted again first. Raises `NonDeterministicReplay` where a join waits for another
    child, and the `Refusal` of a lease that is not held.
    """
    home = lease.execution_id.partition_key
    asked = {"partition_key": home, "group_id": [group.uuid for group in groups]}
    rows = await fetch_all(conn, READ_WINDOW, _Row, **asked)
    if rows and rows[0].replayed and await _reopened(conn, lease, rows):
        rows = await fetch_all(conn, READ_WINDOW, _Row, **asked)
    for row in rows:
        expected = groups[GroupId(home, row.group_id)]
        if row.child != expected.uuid:
            raise NonDeterministicReplay(
                lease.execution_id,
                recorded=[f"child {ExecutionId(home, row.child)}"],
                asked=[f"{expected} at its place"],
            )

    def those(state: GroupState) -> list[ExecutionId]:
        return [ExecutionId(home, row.child) for row in rows if row.group_state == state]

    return ChildWindow(
        running=frozenset(those(GroupState.PENDING)),
        succeeded=frozenset(those(GroupState.SATISFIED)),
        lost=tuple(those(GroupState.IMPOSSIBLE)),
    )


async def _reopened(conn: Connection, lease: Lease, rows: Sequence[_Row]) -> bool:
    """Joins that are not satisfied are evaluated again; True if there are such."""
    unsatisfied = sorted(row.group_id for row in rows if row.group_state != GroupState.SATISFIED)
    for group_id in unsatisfied:
        await reopen_join(conn, GroupId(lease.execution_id.partition_key, group_id))
    if unsatisfied:
        await require_lease(conn, lease, None)
    return bool(unsatisfied)
