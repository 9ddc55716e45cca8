"""A running execution gets children, and one join that waits for all of them; or neither."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.db.rows import Connection
from flowfabric.engine.joins.children import (
    add_joins,
    begin_call,
    check_children,
    create_children,
    in_parent_flow,
    lock_parent_flow,
    read_parent,
    require_lease,
)
from flowfabric.engine.joins.read_join import Join, read_join
from flowfabric.engine.joins.reopen_join import reopen_join
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.lifecycle.create_execution import NewExecution, create_execution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import NonDeterministicReplay
from flowfabric.ids import GroupId
from flowfabric.joins import AllOf, JoinPolicy, policy_columns
from flowfabric.states import GroupState


async def spawn_children(
    conn: Connection,
    lease: Lease,
    children: Sequence[NewExecution],
    *,
    group: GroupId | None,
    policy: JoinPolicy | None = None,
    entry: EntryWrite | None = None,
    partitions: int = 256,
) -> Join | None:
    """The children exist beside their parent, in its flow and namespace; needs a transaction.

    A parent that was in no flow begins one. The join `group` is decided by the completions of the
    children as the policy says; without a group the children are members of no flow and nothing
    waits for them. The same group again changes nothing and gives the join as it is; for a parent
    that was replayed, children that were replayed too or were cancelled with the parent are counted
    again first. The `entry` of the call is in the journal of the parent if the children exist, and
    only then; without a fingerprint it gets that of the children. Raises the `Refusal` of a lease
    that is not held, `FlowAlreadyTerminal`, `LaneNotAccepting`, `ValidationError`, and
    `NonDeterministicReplay` if the group exists with other children or another policy, or the
    entry is that of another call or of children of other kinds or payloads.
    """
    check_children(children, lease.execution_id.partition_key)
    join = await _spawned(conn, lease, children, group, policy or AllOf(), partitions)
    if entry is not None:
        await begin_call(conn, lease, entry, children)
    return join


async def _spawned(
    conn: Connection,
    lease: Lease,
    children: Sequence[NewExecution],
    group: GroupId | None,
    policy: JoinPolicy,
    partitions: int,
) -> Join | None:
    """The children, and the join unless they are detached."""
    parent = await read_parent(conn, lease.execution_id, group)
    if group is None:
        await require_lease(conn, lease, None)
        await create_execution(conn, in_parent_flow(children, parent, None), partitions=partitions)
        return None
    if parent.has_join:
        return await _existing(conn, lease, children, group, policy, replayed=parent.replayed)
    flow = await lock_parent_flow(conn, lease.execution_id, parent, partitions)
    pairs = [(group, child) for child in children]
    added = await add_joins(conn, flow, lease.execution_id, policy, pairs)
    if not added:
        return await _existing(conn, lease, children, group, policy, replayed=parent.replayed)
    if await create_children(conn, lease, parent, flow, pairs, added, partitions):
        return await read_join(conn, group)
    return Join(
        group_state=GroupState.PENDING,
        policy=policy,
        children=frozenset(child.execution_id for child in children),
    )


async def _existing(
    conn: Connection,
    lease: Lease,
    children: Sequence[NewExecution],
    group: GroupId,
    policy: JoinPolicy,
    *,
    replayed: bool,
) -> Join:
    """The join as it is now, if it has these children and this policy."""
    if replayed:
        await reopen_join(conn, group)
    await require_lease(conn, lease, None)
    found = await read_join(conn, group)
    asked = frozenset(child.execution_id for child in children)
    if found.children != asked or policy_columns(found.policy) != policy_columns(policy):
        raise NonDeterministicReplay(
            lease.execution_id,
            recorded=[f"{found.policy} over {len(found.children)} children"],
            asked=[f"{policy} over {len(asked)}"],
        )
    return found
