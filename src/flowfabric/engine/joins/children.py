"""Children of a running execution, and the joins that wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, LiteralString
from uuid import UUID
from zlib import crc32

import msgspec

from flowfabric.counters import EDGE_GROUP_POLICIES
from flowfabric.db.faults import SerializationConflict
from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.engine.flows.create_flow import create_flow
from flowfabric.engine.flows.flow_row import FlowRow, grow_flow, lock_flow
from flowfabric.engine.joins.adopt_children import adopt_children
from flowfabric.engine.journal.begin_entry import BegunEntry, begin_entry
from flowfabric.engine.journal.entry import EntryWrite, entry_key
from flowfabric.engine.lifecycle.create_execution import Duplicate, NewExecution, create_execution
from flowfabric.engine.lifecycle.ensure_parent_flow import ParentFlow, ensure_parent_flow
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import (
    NonDeterministicReplay,
    NotFound,
    ValidationError,
    invalid_input,
)
from flowfabric.ids import ExecutionId, GroupId, new_uuid, parent_flow_id
from flowfabric.joins import JoinPolicy, policy_columns
from flowfabric.states import JournalKind

FLOW_KIND: Final = "children"
UNNAMED: Final = "children"
"""The name of the entry of a call that has no name: only its place tells it from others."""

READ_PARENT: Final[LiteralString] = """
-- joins.read_parent: not locked
SELECT e.flow_id, r.namespace, e.replay_count > 0 AS replayed,
       EXISTS (SELECT FROM ff.edge_group g
                WHERE (g.partition_key, g.group_id)
                    = (%(partition_key)s, %(group_id)s)) AS has_join
  FROM ff.exec_core e JOIN ff.route r USING (route_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""

ADD_JOINS: Final[LiteralString] = """
-- joins.add_joins
WITH given AS (       -- each child with the join that waits for it
    SELECT * FROM unnest(%(group_id)s::uuid[], %(edge_id)s::uuid[], %(child)s::uuid[])
        AS given (group_id, edge_id, child)
), added AS (         -- joins that were not there
    INSERT INTO ff.edge_group (
           partition_key, group_id, flow_id, waiter_eid, waits_as, policy_kind, k, on_satisfied,
           running_count)
    SELECT %(partition_key)s, given.group_id, %(flow_id)s, %(execution_id)s, 'children',
           %(policy_kind)s, %(k)s, %(on_satisfied)s, count(*)
      FROM given GROUP BY given.group_id ORDER BY given.group_id
        ON CONFLICT DO NOTHING
 RETURNING partition_key, group_id, flow_id
), linked AS (
    INSERT INTO ff.edge (
           partition_key, flow_id, edge_id, upstream_eid, group_id, created_at_ms, applied_at_ms,
           edge_state)
    SELECT added.partition_key, added.flow_id, given.edge_id, given.child, added.group_id,
           ff.now_ms(), ff.now_ms(), 'applied'
      FROM added JOIN given USING (group_id)
)
SELECT group_id,
       EXISTS (SELECT FROM ff.exec_core c
                WHERE c.partition_key = %(partition_key)s
                  AND c.execution_id = ANY (%(child)s::uuid[])) AS children_exist
  FROM added
"""


class AddedJoin(msgspec.Struct, frozen=True):
    """A join that this call added."""

    group_id: UUID
    children_exist: bool
    """Was any of the children there already?"""


class Parent(msgspec.Struct, frozen=True):
    """The execution that gets children, as it was read before it was locked."""

    flow_id: UUID | None
    namespace: str
    replayed: bool
    has_join: bool


def check_children(children: Sequence[NewExecution], home: int) -> None:
    """Raises `ValidationError` unless there are children, each once, in the parent's partition."""
    ids = {child.execution_id for child in children}
    if not children or len(ids) < len(children):
        raise invalid_input("children", len(children), "must be at least one, and none twice")
    for child in ids:
        if child.partition_key != home:
            raise ValidationError(
                "partition_mismatch", f"execution_id {child} is not in {{fp:{home}}}"
            )


async def read_parent(
    conn: Connection, execution_id: ExecutionId, group: GroupId | None = None
) -> Parent:
    """The parent, and whether it has that join; raises `NotFound`."""
    parent = await fetch_maybe(
        conn,
        READ_PARENT,
        Parent,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        group_id=None if group is None else group.uuid,
    )
    if parent is None:
        raise NotFound("execution", execution_id)
    return parent


def in_parent_flow(
    children: Sequence[NewExecution], parent: Parent, flow: FlowRow | None
) -> list[NewExecution]:
    """The children in their parent's namespace, and as members of `flow` if one is given."""
    flow_id = None if flow is None else flow.flow_id
    return [
        msgspec.structs.replace(child, namespace=parent.namespace, flow_id=flow_id)
        for child in children
    ]


async def lock_parent_flow(
    conn: Connection, execution_id: ExecutionId, parent: Parent, partitions: int
) -> FlowRow:
    """The flow of parent and children, locked; a parent that is in none begins one."""
    flow_id = parent.flow_id
    if flow_id is None:
        flow_id = parent_flow_id(execution_id, partitions)
        await create_flow(
            conn, flow_id, flow_kind=FLOW_KIND, namespace=parent.namespace, partitions=partitions
        )
    return await lock_flow(conn, execution_id.partition_key, flow_id)


async def add_joins(
    conn: Connection,
    flow: FlowRow,
    waiter: ExecutionId,
    policy: JoinPolicy,
    children: Sequence[tuple[GroupId, NewExecution]],
) -> list[AddedJoin]:
    """The joins that were not there are, with their edges; each child is given with its join."""
    kind, k, on_satisfied = policy_columns(policy)
    added = await fetch_all(
        conn,
        ADD_JOINS,
        AddedJoin,
        partition_key=flow.partition_key,
        flow_id=flow.flow_id,
        group_id=[group.uuid for group, _ in children],
        execution_id=waiter.uuid,
        policy_kind=kind,
        k=k,
        on_satisfied=on_satisfied,
        edge_id=[new_uuid() for _ in children],
        child=[child.execution_id.uuid for _, child in children],
    )
    EDGE_GROUP_POLICIES.add(kind, count=len(added))
    return added


async def create_children(
    conn: Connection,
    lease: Lease,
    parent: Parent,
    flow: FlowRow,
    children: Sequence[tuple[GroupId, NewExecution]],
    added: Sequence[AddedJoin],
    partitions: int,
) -> bool:
    """The children of the added joins exist; True if some existed before, and were adopted."""
    if any(each.children_exist for each in added):
        # Together with their parent, in the order in which every statement locks.
        known = [child.execution_id for _, child in children]
        await lock_executions(conn, [lease.execution_id, *known])
    joined = await require_lease(conn, lease, flow.flow_id)
    if joined.flow_id != flow.flow_id:
        raise SerializationConflict(f"{lease.execution_id} joined another flow meanwhile")
    new = in_parent_flow([child for _, child in children], parent, flow)
    answers = await create_execution(conn, new, partitions=partitions)
    existing = [answer.execution_id for answer in answers if isinstance(answer, Duplicate)]
    nodes = len(children) - len(existing) + joined.joined
    await grow_flow(conn, flow, nodes=nodes, edges=len(children))
    if existing:
        await adopt_children(conn, flow, list({group for group, _ in children}), existing)
    return bool(existing)


def children_fingerprint(children: Iterable[NewExecution]) -> int:
    """A crc32 of the kinds and payloads, in the order of the children."""
    found = 0
    for child in children:
        kind = child.execution_kind.encode()
        size = len(child.input_payload).to_bytes(8, "big")
        found = crc32(child.input_payload, crc32(kind + b"\x00" + size, found))
    return found


async def begin_call(
    conn: Connection, lease: Lease, entry: EntryWrite, children: Sequence[NewExecution]
) -> None:
    """The entry of a call for children is in the journal.

    Its fingerprint is that of these children, unless it has one. Raises the `Refusal` of a lease
    that is not held, `ValidationError` for the entry of another lease or kind, and
    `NonDeterministicReplay` if the journal has another call in its place or, where only the place
    tells calls apart, the same one with other children. The children of a call with a name stay
    those of its first run.
    """
    if entry.lease != lease:
        raise invalid_input("entry", str(entry.lease.execution_id), "must be of the same lease")
    if entry.kind is not JournalKind.CHILDREN:
        raise invalid_input("entry", entry.kind.value, "must be of kind children")
    if entry.fingerprint is None:
        entry = msgspec.structs.replace(entry, fingerprint=children_fingerprint(children))
    found = await begin_entry(conn, entry)
    if not isinstance(found, BegunEntry):
        raise found
    key = entry_key(entry.name, entry.item, entry.occurrence)
    if (found.kind, found.key) == (entry.kind, key):
        if entry.name != UNNAMED or found.fingerprint in (None, entry.fingerprint):
            return
        key += " with other kinds or payloads"
    raise NonDeterministicReplay(
        lease.execution_id,
        recorded=[f"{found.kind.value} {found.key}"],
        asked=[f"{entry.kind.value} {key}"],
    )


async def require_lease(conn: Connection, lease: Lease, flow_id: UUID | None) -> ParentFlow:
    """The parent is locked, and joins `flow_id` if it was in no flow; raises the `Refusal`."""
    answer = await ensure_parent_flow(conn, lease, flow_id)
    if not isinstance(answer, ParentFlow):
        raise answer
    return answer
