"""A running execution gets children, each with a join of its own."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric.db.rows import Connection
from flowfabric.engine.joins.children import (
    add_joins,
    begin_call,
    check_children,
    create_children,
    lock_parent_flow,
    read_parent,
    require_lease,
)
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import invalid_input
from flowfabric.ids import GroupId
from flowfabric.joins import AllOf


async def spawn_apart(
    conn: Connection,
    lease: Lease,
    children: Mapping[GroupId, NewExecution],
    *,
    entry: EntryWrite | None = None,
    partitions: int = 256,
) -> None:
    """Each child exists as by `spawn_children`, with the join that is its key here.

    Needs a transaction. A child whose join exists stays as it is. The `entry` has the fingerprint
    of all children of the call, of which these are some. Raises as `spawn_children`.
    """
    if entry is not None and entry.fingerprint is None:
        raise invalid_input("entry", entry.name, "must have a fingerprint")
    check_children(list(children.values()), lease.execution_id.partition_key)
    parent = await read_parent(conn, lease.execution_id)
    flow = await lock_parent_flow(conn, lease.execution_id, parent, partitions)
    added = await add_joins(conn, flow, lease.execution_id, AllOf(), list(children.items()))
    if added:
        fresh = {each.group_id for each in added}
        new = [(group, child) for group, child in children.items() if group.uuid in fresh]
        await create_children(conn, lease, parent, flow, new, added, partitions)
    else:
        await require_lease(conn, lease, None)
    if entry is not None:
        await begin_call(conn, lease, entry, list(children.values()))
