"""A running execution gets children, and a wait that is decided by their ends; or neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.faults import SerializationConflict
from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.engine.flows.adopt_children import adopt_children
from flowfabric.engine.flows.create_flow import create_flow
from flowfabric.engine.flows.flow_row import FlowRow, grow, locked_flow
from flowfabric.engine.flows.read_wait import Wait, read_wait
from flowfabric.engine.flows.reopen_wait import reopen_wait
from flowfabric.engine.lifecycle.create_execution import Duplicate, NewExecution, create_execution
from flowfabric.engine.lifecycle.join_family import Family, join_family
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import NonDeterministicReplay, NotFound, ValidationError, invalid_input
from flowfabric.ids import ExecutionId, family_id, new_uuid
from flowfabric.joins import AllOf, JoinPolicy, policy_columns
from flowfabric.states import GroupState

FLOW_KIND: Final = "children"

PARENT: Final[LiteralString] = """
-- flows.spawn_children: the parent, not locked yet
SELECT e.flow_id, r.namespace, e.replay_count > 0 AS replayed,
       EXISTS (SELECT FROM ff.edge_group g
                WHERE (g.partition_key, g.downstream_eid) = (%(partition_key)s, %(wait)s)) AS waited
  FROM ff.exec_core e JOIN ff.route r USING (route_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""

ADD_WAITS: Final[LiteralString] = """
-- flows.spawn_children: waits and their edges, unless somebody was faster
WITH given AS (       -- each child with the wait that hears of it
    SELECT * FROM unnest(%(wait)s::uuid[], %(edge_id)s::uuid[], %(child)s::uuid[])
        AS given (wait, edge_id, child)
), waited AS (
    INSERT INTO ff.edge_group (
           partition_key, flow_id, downstream_eid, policy_kind, k, on_satisfied, running_count,
           wakes)
    SELECT %(partition_key)s, %(flow_id)s, given.wait, %(policy_kind)s, %(k)s, %(on_satisfied)s,
           count(*), %(execution_id)s
      FROM given GROUP BY given.wait ORDER BY given.wait
        ON CONFLICT DO NOTHING
 RETURNING partition_key, flow_id, downstream_eid
), linked AS (
    INSERT INTO ff.edge (
           partition_key, flow_id, edge_id, upstream_eid, downstream_eid, created_at_ms,
           applied_at_ms, edge_state)
    SELECT waited.partition_key, waited.flow_id, given.edge_id, given.child,
           waited.downstream_eid, ff.now_ms(), ff.now_ms(), 'applied'
      FROM waited JOIN given ON given.wait = waited.downstream_eid
)
SELECT downstream_eid AS wait,
       EXISTS (SELECT FROM ff.exec_core c
                WHERE c.partition_key = %(partition_key)s
                  AND c.execution_id = ANY (%(child)s::uuid[])) AS born_before
  FROM waited
"""


class _Added(msgspec.Struct, frozen=True):
    wait: UUID
    born_before: bool
    """Was any of the children there already?"""


class _Parent(msgspec.Struct, frozen=True):
    flow_id: UUID | None
    namespace: str
    replayed: bool
    waited: bool


async def spawn_children(
    conn: Connection,
    lease: Lease,
    children: Sequence[NewExecution],
    *,
    wait: UUID | None,
    policy: JoinPolicy | None = None,
    partitions: int = 256,
) -> Wait | None:
    """The children exist beside their parent, in its flow and namespace; needs a transaction.

    A parent that was in no flow begins one. `wait` is decided by the children's ends as the policy
    says; without one they are nobody's members and nobody waits for them. The same wait again
    changes nothing and tells how it stands; for a parent that was replayed it first looks again at
    children that were replayed too or were cancelled with the parent. Raises the `Refusal` of a
    lease that is not held, `FlowAlreadyTerminal`, `LaneNotAccepting`, `ValidationError`, and
    `NonDeterministicReplay` where the wait is for others.
    """
    parent, home = lease.execution_id, lease.execution_id.partition_key
    _check(children, home)
    asked = {"partition_key": home, "execution_id": parent.uuid, "wait": wait}
    known = await fetch_maybe(conn, PARENT, _Parent, **asked)
    if known is None:
        raise NotFound("execution", parent)
    if wait is None:
        await _held(conn, lease, None)
        await create_execution(conn, _born(children, known, None), partitions=partitions)
        return None
    policy = AllOf() if policy is None else policy
    flow = None if known.waited else await _family(conn, parent, known, partitions)
    apart = [(wait, child) for child in children]
    added = [] if flow is None else await _add_waits(conn, flow, parent, policy, apart)
    if flow is None or not added:
        return await _again(conn, lease, children, wait, policy, replayed=known.replayed)
    if await _bear(conn, lease, known, flow, apart, added, partitions):
        return await read_wait(conn, ExecutionId(home, wait))
    return Wait(
        group_state=GroupState.PENDING,
        policy=policy,
        children=frozenset(child.execution_id for child in children),
    )


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
    _check(list(children.values()), parent.partition_key)
    asked = {"partition_key": parent.partition_key, "execution_id": parent.uuid, "wait": None}
    known = await fetch_maybe(conn, PARENT, _Parent, **asked)
    if known is None:
        raise NotFound("execution", parent)
    flow = await _family(conn, parent, known, partitions)
    added = await _add_waits(conn, flow, parent, AllOf(), list(children.items()))
    fresh = {each.wait for each in added}
    if added:
        new = [(wait, child) for wait, child in children.items() if wait in fresh]
        await _bear(conn, lease, known, flow, new, added, partitions)
    else:
        await _held(conn, lease, None)


def _check(children: Sequence[NewExecution], home: int) -> None:
    ids = {child.execution_id for child in children}
    if not children or len(ids) < len(children):
        raise invalid_input("children", len(children), "must be at least one, and none twice")
    for child in ids:
        if child.partition_key != home:
            raise ValidationError(
                "partition_mismatch", f"execution_id {child} is not in {{fp:{home}}}"
            )


def _born(
    children: Sequence[NewExecution], parent: _Parent, flow: FlowRow | None
) -> list[NewExecution]:
    flow_id = None if flow is None else flow.flow_id
    return [
        msgspec.structs.replace(child, namespace=parent.namespace, flow_id=flow_id)
        for child in children
    ]


async def _family(
    conn: Connection, parent: ExecutionId, known: _Parent, partitions: int
) -> FlowRow:
    """The flow of parent and children, locked."""
    flow_id = known.flow_id
    if flow_id is None:
        flow_id = family_id(parent, partitions)
        await create_flow(
            conn, flow_id, flow_kind=FLOW_KIND, namespace=known.namespace, partitions=partitions
        )
    return await locked_flow(conn, parent.partition_key, flow_id)


async def _add_waits(
    conn: Connection,
    flow: FlowRow,
    parent: ExecutionId,
    policy: JoinPolicy,
    children: Sequence[tuple[UUID, NewExecution]],
) -> list[_Added]:
    """The waits that were not there; each child is given with the one that hears of it."""
    kind, k, on_satisfied = policy_columns(policy)
    return await fetch_all(
        conn,
        ADD_WAITS,
        _Added,
        partition_key=flow.partition_key,
        flow_id=flow.flow_id,
        wait=[wait for wait, _ in children],
        execution_id=parent.uuid,
        policy_kind=kind,
        k=k,
        on_satisfied=on_satisfied,
        edge_id=[new_uuid() for _ in children],
        child=[child.execution_id.uuid for _, child in children],
    )


async def _bear(
    conn: Connection,
    lease: Lease,
    parent: _Parent,
    flow: FlowRow,
    children: Sequence[tuple[UUID, NewExecution]],
    added: Sequence[_Added],
    partitions: int,
) -> bool:
    """The children of waits that are new exist; True if some did before, and were adopted."""
    if any(each.born_before for each in added):
        # With their parent, in the order in which everybody locks.
        known = [child.execution_id for _, child in children]
        await lock_executions(conn, [lease.execution_id, *known])
    family = await _held(conn, lease, flow.flow_id)
    if family.flow_id != flow.flow_id:
        raise SerializationConflict(f"{lease.execution_id} joined another flow meanwhile")
    born = _born([child for _, child in children], parent, flow)
    answers = await create_execution(conn, born, partitions=partitions)
    found = [answer.execution_id for answer in answers if isinstance(answer, Duplicate)]
    new = len(children) - len(found) + family.joined
    await grow(conn, flow, nodes=new, edges=len(children))
    if found:
        await adopt_children(conn, flow, list({wait for wait, _ in children}), found)
    return bool(found)


async def _held(conn: Connection, lease: Lease, flow_id: UUID | None) -> Family:
    """The parent, locked and if need be joined to the flow; raises the `Refusal`."""
    answer = await join_family(conn, lease, flow_id)
    if not isinstance(answer, Family):
        raise answer
    return answer


async def _again(
    conn: Connection,
    lease: Lease,
    children: Sequence[NewExecution],
    wait: UUID,
    policy: JoinPolicy,
    *,
    replayed: bool,
) -> Wait:
    """The wait as it stands, if it is the one that is meant."""
    name = ExecutionId(lease.execution_id.partition_key, wait)
    if replayed:
        await reopen_wait(conn, name)
    await _held(conn, lease, None)
    found = await read_wait(conn, name)
    asked = frozenset(child.execution_id for child in children)
    if found.children != asked or policy_columns(found.policy) != policy_columns(policy):
        raise NonDeterministicReplay(
            lease.execution_id,
            before=f"{found.policy} over {len(found.children)} children",
            now=f"{policy} over {len(asked)}",
        )
    return found
