"""An execution becomes a member of a flow; members never leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.flows.flow_row import grow_flow, lock_flow
from flowfabric.engine.lifecycle.join_flow import join_flow
from flowfabric.errors import ExecutionAlreadyInFlow, NotFound, ValidationError
from flowfabric.ids import ExecutionId, check_name, uuid_partition

MEMBERSHIP: Final[LiteralString] = """
-- flows.add_execution_to_flow
SELECT e.flow_id FROM ff.exec_core e JOIN ff.route r USING (route_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
   AND r.namespace = %(namespace)s
   FOR NO KEY UPDATE OF e
"""


class MemberAdded(msgspec.Struct, frozen=True, kw_only=True):
    """This call made the execution a member."""

    execution_id: ExecutionId
    new_node_count: int


class AlreadyMember(msgspec.Struct, frozen=True, kw_only=True):
    """The execution was a member before; nothing changed."""

    execution_id: ExecutionId
    node_count: int


class _Membership(msgspec.Struct, frozen=True):
    flow_id: UUID | None


async def add_execution_to_flow(
    conn: Connection,
    flow_id: UUID,
    execution_id: ExecutionId,
    *,
    member_name: str | None = None,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> MemberAdded | AlreadyMember:
    """The execution is a member of the flow; needs a transaction.

    Raises `ValidationError(partition_mismatch)`, `NotFound` (flow, execution; an execution of
    another namespace is not found), `FlowAlreadyTerminal`, and `ExecutionAlreadyInFlow` for a
    member of another flow.
    """
    home = uuid_partition(flow_id, partitions)
    if execution_id.partition_key != home:
        raise ValidationError(
            "partition_mismatch", f"execution_id {execution_id} is not in {{fp:{home}}}"
        )
    if member_name is not None:
        check_name(member_name, field="member_name")
    flow = await lock_flow(conn, home, flow_id, namespaces=namespaces)
    membership = await fetch_maybe(
        conn,
        MEMBERSHIP,
        _Membership,
        partition_key=home,
        execution_id=execution_id.uuid,
        namespace=flow.namespace,
    )
    if membership is None:
        raise NotFound("execution", execution_id)
    if membership.flow_id == flow_id:
        return AlreadyMember(execution_id=execution_id, node_count=flow.node_count)
    if membership.flow_id is not None:
        raise ExecutionAlreadyInFlow(execution_id, membership.flow_id)
    await join_flow(conn, execution_id, flow_id, member_name=member_name)
    await grow_flow(conn, flow, nodes=1)
    return MemberAdded(execution_id=execution_id, new_node_count=flow.node_count + 1)
