"""The policy of the join of a member: how many upstreams it waits for; set before any edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.counters import EDGE_GROUP_POLICIES
from flowfabric.db.rows import Connection, execute, fetch_one
from flowfabric.engine.flows.flow_row import check_members, lock_flow
from flowfabric.errors import ValidationError
from flowfabric.ids import ExecutionId, member_group_id, uuid_partition
from flowfabric.joins import JoinPolicy, check_expected, policy_columns

STORED: Final[LiteralString] = """
-- joins.set_edge_group_policy: the stored policy and the number of edges
SELECT (SELECT count(*) FROM ff.edge e
         WHERE (e.partition_key, e.group_id)
             = (%(partition_key)s, %(group_id)s)) AS edges,
       g.policy_kind, g.k, g.on_satisfied, g.expected_n
  FROM (SELECT) AS always
  LEFT JOIN ff.edge_group g
    ON (g.partition_key, g.group_id) = (%(partition_key)s, %(group_id)s)
"""

SET_EDGE_GROUP_POLICY: Final[LiteralString] = """
-- joins.set_edge_group_policy
INSERT INTO ff.edge_group (
       partition_key, group_id, flow_id, waiter_eid, waits_as, policy_kind, k, on_satisfied,
       expected_n)
VALUES (%(partition_key)s, %(group_id)s, %(flow_id)s, %(waiter_eid)s, 'member', %(policy_kind)s,
        %(k)s, %(on_satisfied)s, %(expected_n)s)
    ON CONFLICT (partition_key, group_id) DO UPDATE
   SET policy_kind = EXCLUDED.policy_kind, k = EXCLUDED.k, on_satisfied = EXCLUDED.on_satisfied,
       expected_n = EXCLUDED.expected_n
"""


class JoinPolicySet(msgspec.Struct, frozen=True, kw_only=True):
    """The join of the member has this policy; `repeated` if it had it before."""

    downstream: ExecutionId
    repeated: bool = False


class _Stored(msgspec.Struct, frozen=True):
    edges: int
    policy_kind: str | None
    k: int | None
    on_satisfied: str | None
    expected_n: int | None


async def set_edge_group_policy(
    conn: Connection,
    flow_id: UUID,
    downstream: ExecutionId,
    policy: JoinPolicy,
    *,
    expected_n: int | None = None,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> JoinPolicySet:
    """The join of the member has this policy; needs a transaction.

    With `expected_n` the join is not decided before so many edges are applied. Raises
    `ValidationError` (a quorum that cannot be reached), `NotFound(flow)`, `FlowAlreadyTerminal`,
    `ExecutionNotInFlow`, and `ValidationError(edge_group_policy_already_fixed)` if an edge leads
    to the member.
    """
    check_expected(policy, expected_n)
    home = uuid_partition(flow_id, partitions)
    flow = await lock_flow(conn, home, flow_id, namespaces=namespaces)
    await check_members(conn, flow, downstream)
    group = {"partition_key": flow.partition_key, "group_id": member_group_id(downstream).uuid}
    stored = await fetch_one(conn, STORED, _Stored, **group)
    if stored.edges:
        raise ValidationError(
            "edge_group_policy_already_fixed", f"downstream {downstream} has an edge already"
        )
    kind, k, on_satisfied = policy_columns(policy)
    wanted = (kind, k, on_satisfied, expected_n)
    if wanted == (stored.policy_kind, stored.k, stored.on_satisfied, stored.expected_n):
        return JoinPolicySet(downstream=downstream, repeated=True)
    await execute(
        conn,
        SET_EDGE_GROUP_POLICY,
        flow_id=flow_id,
        waiter_eid=downstream.uuid,
        policy_kind=kind,
        k=k,
        on_satisfied=on_satisfied,
        expected_n=expected_n,
        **group,
    )
    EDGE_GROUP_POLICIES.add(kind)
    return JoinPolicySet(downstream=downstream)
