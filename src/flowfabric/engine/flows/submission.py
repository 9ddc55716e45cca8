"""The statement that submits flows: its parameters, and the answer for each flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.counters import EDGE_GROUP_POLICIES
from flowfabric.engine.flows.create_flow import OPEN_SUMMARY
from flowfabric.engine.flows.new_flow import NewFlow, digest_differs
from flowfabric.engine.lifecycle.creation_columns import creation_columns
from flowfabric.errors import EngineError, IdempotencyConflict, invalid_input
from flowfabric.ids import ExecutionId, member_group_id, uuid_partition
from flowfabric.joins import AllOf, policy_columns

# One statement, so that it is all or nothing on any connection, also with autocommit. A flow that
# exists stays as it is. A flow is refused if the id of one of its members is taken. Neither has an
# effect on the other flows. Members, edges and joins find their flow by its number, which is its
# place in the arrays `home` and `flow_id`: a join would compare each of them with every flow.
SUBMIT_FLOWS: Final[LiteralString] = (
    """
-- flows.submission
WITH new_flow AS (
    SELECT * FROM unnest(%(home)s::smallint[], %(flow_id)s::uuid[], %(flow_kind)s::text[],
                         %(namespace)s::text[], %(flow_tags)s::text[], %(node_count)s::integer[],
                         %(edge_count)s::integer[], %(graph_digest)s::bytea[]) WITH ORDINALITY
        AS new_flow (partition_key, flow_id, flow_kind, namespace, tags, node_count, edge_count,
                     graph_digest, number)
), member AS (        -- each with the number of its flow
    SELECT * FROM unnest(%(member_of)s::integer[], %(partition_key)s::smallint[],
                         %(execution_id)s::uuid[], %(shape)s::integer[], %(payload)s::bytea[],
                         %(priority)s::integer[], %(delay_ms)s::bigint[],
                         %(delay_until_ms)s::bigint[], %(deadline_ms)s::bigint[],
                         %(deadline_at_ms)s::bigint[], %(tags)s::text[], %(hold)s::boolean[],
                         %(member_name)s::text[]) WITH ORDINALITY
        AS member (number, home, execution_id, shape, payload, priority, delay_ms, delay_until_ms,
                   deadline_ms, deadline_at_ms, tags, hold, member_name, ordinal)
), taken AS (         -- of each flow the first member whose id exists; looked up one by one
    SELECT DISTINCT ON (number) number, execution_id FROM member
     WHERE NOT %(fresh)s::boolean AND (SELECT true FROM ff.exec_core e
             WHERE (e.partition_key, e.execution_id) = (member.home, member.execution_id))
     ORDER BY number, ordinal
), created AS (       -- inserted in one order
    INSERT INTO ff.flow_core (
           partition_key, flow_id, flow_kind, namespace, graph_revision, node_count, edge_count,
           created_at_ms, last_mutation_at_ms, tags, graph_digest)
    SELECT partition_key, flow_id, flow_kind, namespace, node_count + edge_count, node_count,
           edge_count, ff.now_ms(), ff.now_ms(), tags::jsonb, graph_digest
      FROM new_flow WHERE number NOT IN (SELECT number FROM taken)
     ORDER BY partition_key, flow_id
        ON CONFLICT DO NOTHING
 RETURNING partition_key, flow_id
), """
    + OPEN_SUMMARY
    + """, left_out AS (      -- the numbers of the flows that this statement does not create
    SELECT number FROM new_flow
     WHERE (partition_key, flow_id) NOT IN (SELECT partition_key, flow_id FROM created)
), linked AS (        -- the edges, applied
    INSERT INTO ff.edge (
           partition_key, flow_id, edge_id, upstream_eid, group_id, created_at_ms, applied_at_ms,
           edge_state, data_passing_ref)
    SELECT (%(home)s::smallint[])[edge.number], (%(flow_id)s::uuid[])[edge.number], edge.edge_id,
           edge.upstream, edge.group_id, ff.now_ms(), ff.now_ms(), 'applied', edge.data_passing_ref
      FROM unnest(%(edge_of)s::integer[], %(edge_id)s::uuid[], %(upstream)s::uuid[],
                  %(edge_group)s::uuid[], %(data_passing_ref)s::text[])
           AS edge (number, edge_id, upstream, group_id, data_passing_ref)
     WHERE edge.number NOT IN (SELECT number FROM left_out)
), grouped AS (       -- the join of each member that has upstreams
    INSERT INTO ff.edge_group (
           partition_key, group_id, flow_id, waiter_eid, waits_as, policy_kind, k, on_satisfied,
           running_count)
    SELECT (%(home)s::smallint[])[waiting.number], waiting.group_id,
           (%(flow_id)s::uuid[])[waiting.number], waiting.waiter_eid, 'member',
           waiting.policy_kind, waiting.k, waiting.on_satisfied, waiting.running_count
      FROM unnest(%(group_of)s::integer[], %(group_id)s::uuid[], %(waiter_eid)s::uuid[],
                  %(policy_kind)s::text[], %(k)s::integer[], %(on_satisfied)s::text[],
                  %(running_count)s::integer[])
           AS waiting (number, group_id, waiter_eid, policy_kind, k, on_satisfied, running_count)
     WHERE waiting.number NOT IN (SELECT number FROM left_out)
), columns AS (       -- the members of created flows; a field that no member has stays NULL
    SELECT array_agg(home) AS home, array_agg(execution_id) AS execution_id,
           array_agg(coalesce(shape, 1)) AS shape, array_agg(payload) AS payload,
           array_agg(priority) AS priority,
           CASE WHEN %(delay_ms)s::bigint[] IS NOT NULL THEN array_agg(delay_ms) END AS delay_ms,
           CASE WHEN %(delay_until_ms)s::bigint[] IS NOT NULL THEN array_agg(delay_until_ms) END
               AS delay_until_ms,
           CASE WHEN %(deadline_ms)s::bigint[] IS NOT NULL THEN array_agg(deadline_ms) END
               AS deadline_ms,
           CASE WHEN %(deadline_at_ms)s::bigint[] IS NOT NULL THEN array_agg(deadline_at_ms) END
               AS deadline_at_ms,
           CASE WHEN %(tags)s::text[] IS NOT NULL THEN array_agg(tags::jsonb) END AS tags,
           array_agg(flow_id) AS flow_id,
           CASE WHEN %(hold)s::boolean[] IS NOT NULL THEN array_agg(hold) END AS hold,
           array_agg(member_name) AS member_name
      FROM (SELECT member.*, (%(flow_id)s::uuid[])[member.number] AS flow_id FROM member
             WHERE member.number NOT IN (SELECT number FROM left_out)
             ORDER BY member.ordinal) AS of_created
    HAVING count(*) > 0
), answer AS (        -- of `ff.create_execution`, which answers nothing for a plain new execution
    SELECT answered.execution_id, answered.created
      FROM columns, ff.create_execution(
           %(shape_namespace)s::text[], %(shape_lane_id)s::text[], %(shape_execution_kind)s::text[],
           %(shape_required_capabilities)s::text[], %(shape_payload_encoding)s::text[],
           %(shape_creator_identity)s::text[], %(shape_policy)s::text[]::jsonb[], columns.home,
           columns.execution_id, columns.shape, columns.payload, columns.priority,
           columns.delay_ms, columns.delay_until_ms, columns.deadline_ms,
           columns.deadline_at_ms, NULL, NULL, columns.tags, NULL, columns.flow_id,
           columns.hold, columns.member_name, %(fresh)s::boolean) AS answered
)
SELECT new_flow.number, created.flow_id IS NOT NULL AS created,
       coalesce((SELECT true FROM ff.flow_core f
                  WHERE (f.partition_key, f.flow_id) = (new_flow.partition_key, new_flow.flow_id)),
                false) AS existed,
       coalesce(taken.execution_id, (SELECT execution_id FROM answer WHERE NOT created LIMIT 1))
           AS taken,
       CASE WHEN created.flow_id IS NULL AND new_flow.graph_digest IS NOT NULL
            THEN ff.flow_digest(new_flow.partition_key, new_flow.flow_id) END AS found_digest
  FROM new_flow LEFT JOIN created USING (partition_key, flow_id) LEFT JOIN taken USING (number)
"""
)


class FlowSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """The whole graph exists; `repeated` if it was submitted before this call."""

    flow_id: UUID
    members: int
    edges: int
    repeated: bool = False


class SubmissionRow(msgspec.Struct, frozen=True):
    """The answer of the statement for one flow."""

    number: int
    created: bool
    existed: bool
    taken: UUID | None
    """A member whose id belongs to an execution that exists already."""
    found_digest: bytes | None
    """Of the flow that exists with the idempotency key."""


class Submission:
    """One call of the statement: the flows that are valid, its parameters and its answers."""

    def __init__(self, submitted: Sequence[NewFlow], *, partitions: int = 256) -> None:
        self._submitted, self._partitions = submitted, partitions
        self._refused: dict[int, EngineError] = {}
        self._first: dict[UUID, int] = {}
        for place, flow in enumerate(submitted):
            if flow.flow_id in self._first:
                continue
            try:
                flow.check(partitions=partitions)
            except EngineError as error:
                self._refused[place] = error
            else:
                self._first[flow.flow_id] = place
        self.flows = [submitted[place] for place in self._first.values()]
        """The valid flows, each id once."""

    def columns(self) -> dict[str, object]:
        """The parameters of the statement; what belongs to a flow has the number of the flow."""
        flows = list(enumerate(self.flows, 1))
        inbound = Counter(edge.downstream for _, flow in flows for edge in flow.edges)
        members = [
            msgspec.structs.replace(member, hold=True if inbound[member.execution_id] else None)
            for _, flow in flows
            for member in flow.members
        ]
        edges = [(number, edge) for number, flow in flows for edge in flow.edges]
        waiting = {edge.downstream: number for number, edge in edges}
        groups = {downstream: member_group_id(downstream).uuid for downstream in waiting}
        policies = [
            policy_columns(self.flows[number - 1].policies.get(downstream, AllOf()))
            for downstream, number in waiting.items()
        ]
        return {
            # The members of a flow are new if the flow is, unless somebody chose their ids.
            **creation_columns(
                members,
                partitions=self._partitions,
                fresh=all(flow.ids_follow for flow in self.flows),
            ),
            "home": [uuid_partition(flow.flow_id, self._partitions) for _, flow in flows],
            "flow_id": [flow.flow_id for _, flow in flows],
            "flow_kind": [flow.flow_kind for _, flow in flows],
            "namespace": [flow.namespace for _, flow in flows],
            "flow_tags": [msgspec.json.encode(flow.tags).decode() for _, flow in flows],
            "node_count": [len(flow.members) for _, flow in flows],
            "edge_count": [len(flow.edges) for _, flow in flows],
            "graph_digest": [flow.graph_digest for _, flow in flows],
            "member_of": [number for number, flow in flows for _ in flow.members],
            "edge_of": [number for number, _ in edges],
            "edge_id": [edge.edge_id for _, edge in edges],
            "upstream": [edge.upstream.uuid for _, edge in edges],
            "edge_group": [groups[edge.downstream] for _, edge in edges],
            "data_passing_ref": [edge.data_passing_ref for _, edge in edges],
            "group_of": list(waiting.values()),
            "group_id": list(groups.values()),
            "waiter_eid": [downstream.uuid for downstream in waiting],
            "policy_kind": [kind for kind, _, _ in policies],
            "k": [k for _, k, _ in policies],
            "on_satisfied": [on_satisfied for _, _, on_satisfied in policies],
            "running_count": [inbound[downstream] for downstream in waiting],
        }

    def answers(self, rows: Sequence[SubmissionRow]) -> list[FlowSubmitted | EngineError]:
        """The answer for each flow, in the order given.

        Raises `ValidationError` if the id of a member was taken while the statement ran.
        """
        of_flow = {self.flows[row.number - 1].flow_id: row for row in rows}
        EDGE_GROUP_POLICIES.add_all(
            (flow.policies.get(downstream, AllOf()).kind.value,)
            for flow in self.flows
            if of_flow[flow.flow_id].created
            for downstream in {edge.downstream for edge in flow.edges}
        )
        return [
            self._refused.get(place) or self._answer(place, flow, of_flow[flow.flow_id])
            for place, flow in enumerate(self._submitted)
        ]

    def _answer(self, place: int, flow: NewFlow, row: SubmissionRow) -> FlowSubmitted | EngineError:
        if row.taken is not None and not row.existed:
            home = uuid_partition(flow.flow_id, self._partitions)
            taken = str(ExecutionId(home, row.taken))
            error = invalid_input("execution_id", taken, "exists already")
            if row.created:
                raise error
            return error
        differs = self._differs(flow, row)
        if differs and flow.on_conflict == "error":
            key = flow.idempotency_key or ""
            return IdempotencyConflict(
                key,
                execution_id=flow.members[0].execution_id,
                differs=differs,
                flow_id=flow.flow_id,
            )
        return FlowSubmitted(
            flow_id=flow.flow_id,
            members=len(flow.members),
            edges=len(flow.edges),
            repeated=not row.created or self._first[flow.flow_id] != place,
        )

    def _differs(self, flow: NewFlow, row: SubmissionRow) -> list[str]:
        """What the flow that has the key has otherwise; that may be an earlier one of this call."""
        created = self._submitted[self._first[flow.flow_id]].graph_digest if row.created else None
        return digest_differs(row.found_digest or created, flow.graph_digest)
