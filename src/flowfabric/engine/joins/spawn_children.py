"""A running execution gets children, and one join that waits for all of them; or neither."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.joins.children import (
    PARENT,
    Parent,
    add_joins,
    check_children,
    create_children,
    in_parent_flow,
    lock_parent_flow,
    require_lease,
)
from flowfabric.engine.joins.read_join import Join, read_join
from flowfabric.engine.joins.reopen_join import reopen_join
from flowfabric.engine.lifecycle.create_execution import NewExecution, create_execution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import NonDeterministicReplay, NotFound
from flowfabric.ids import ExecutionId
from flowfabric.joins import AllOf, JoinPolicy, policy_columns
from flowfabric.states import GroupState


async def spawn_children(
    conn: Connection,
    lease: Lease,
    children: Sequence[NewExecution],
    *,
    wait: UUID | None,
    policy: JoinPolicy | None = None,
    partitions: int = 256,
) -> Join | None:
    """The children exist beside their parent, in its flow and namespace; needs a transaction.

    A parent that was in no flow begins one. `wait` is decided by the children's ends as the policy
    says; without one they are nobody's members and nobody waits for them. The same wait again
    changes nothing and tells how it stands; for a parent that was replayed it first looks again at
    children that were replayed too or were cancelled with the parent. Raises the `Refusal` of a
    lease that is not held, `FlowAlreadyTerminal`, `LaneNotAccepting`, `ValidationError`, and
    `NonDeterministicReplay` where the wait is for others.
    """
    parent, home = lease.execution_id, lease.execution_id.partition_key
    check_children(children, home)
    asked = {"partition_key": home, "execution_id": parent.uuid, "wait": wait}
    known = await fetch_maybe(conn, PARENT, Parent, **asked)
    if known is None:
        raise NotFound("execution", parent)
    if wait is None:
        await require_lease(conn, lease, None)
        await create_execution(conn, in_parent_flow(children, known, None), partitions=partitions)
        return None
    policy = AllOf() if policy is None else policy
    flow = None if known.waited else await lock_parent_flow(conn, parent, known, partitions)
    apart = [(wait, child) for child in children]
    added = [] if flow is None else await add_joins(conn, flow, parent, policy, apart)
    if flow is None or not added:
        return await _again(conn, lease, children, wait, policy, replayed=known.replayed)
    if await create_children(conn, lease, known, flow, apart, added, partitions):
        return await read_join(conn, ExecutionId(home, wait))
    return Join(
        group_state=GroupState.PENDING,
        policy=policy,
        children=frozenset(child.execution_id for child in children),
    )


async def _again(
    conn: Connection,
    lease: Lease,
    children: Sequence[NewExecution],
    wait: UUID,
    policy: JoinPolicy,
    *,
    replayed: bool,
) -> Join:
    """The wait as it stands, if it is the one that is meant."""
    name = ExecutionId(lease.execution_id.partition_key, wait)
    if replayed:
        await reopen_join(conn, name)
    await require_lease(conn, lease, None)
    found = await read_join(conn, name)
    asked = frozenset(child.execution_id for child in children)
    if found.children != asked or policy_columns(found.policy) != policy_columns(policy):
        raise NonDeterministicReplay(
            lease.execution_id,
            before=f"{found.policy} over {len(found.children)} children",
            now=f"{policy} over {len(asked)}",
        )
    return found
