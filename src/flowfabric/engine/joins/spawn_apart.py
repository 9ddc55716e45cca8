"""A running execution gets children, each with a join of its own."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.joins.children import (
    PARENT,
    Parent,
    add_joins,
    check_children,
    create_children,
    lock_parent_flow,
    require_lease,
)
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import NotFound
from flowfabric.joins import AllOf


async def spawn_apart(
    conn: Connection,
    lease: Lease,
    children: Mapping[UUID, NewExecution],
    *,
    partitions: int = 256,
) -> None:
    """Each child exists as by `spawn_children`, with a wait of its own: the key that it has here.

    Needs a transaction. A child whose wait is there stays as it is. Raises as `spawn_children`.
    """
    parent = lease.execution_id
    check_children(list(children.values()), parent.partition_key)
    asked = {"partition_key": parent.partition_key, "execution_id": parent.uuid, "wait": None}
    known = await fetch_maybe(conn, PARENT, Parent, **asked)
    if known is None:
        raise NotFound("execution", parent)
    flow = await lock_parent_flow(conn, parent, known, partitions)
    added = await add_joins(conn, flow, parent, AllOf(), list(children.items()))
    fresh = {each.wait for each in added}
    if added:
        new = [(wait, child) for wait, child in children.items() if wait in fresh]
        await create_children(conn, lease, known, flow, new, added, partitions)
    else:
        await require_lease(conn, lease, None)
