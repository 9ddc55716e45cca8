"""How many executions that have not ended are in each state, up to a number, in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.executions.count_matching import MOST, MatchCount
from flowfabric.engine.executions.exceptional_states import EXCEPTIONAL_STATES
from flowfabric.engine.executions.search import MAX_KINDS
from flowfabric.errors import invalid_input
from flowfabric.ids import check_lane, storable_text
from flowfabric.pages import check_limit
from flowfabric.states import PublicState

# Of each route no more rows are counted than are asked for, and from indexes: but for the leases,
# which are as many as handlers run, and executions that resume, which are few.
COUNT_BY_STATE: Final[LiteralString] = """
-- executions.count_by_state
WITH routes AS MATERIALIZED (
    SELECT route_id, lane_id FROM ff.route
     WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
       AND (%(lane_id)s::text IS NULL OR lane_id = %(lane_id)s)
       AND (%(execution_kinds)s::text[] IS NULL OR execution_kind = ANY (%(execution_kinds)s))
), held AS MATERIALIZED (        -- what workers hold, and what of it resumes
    SELECT e.route_id, count(*) AS active, count(*) FILTER (WHERE e.resume_pending) AS resumed
      FROM ff.lease l CROSS JOIN LATERAL (
            SELECT e.route_id, e.resume_pending FROM ff.exec_core e
             WHERE (e.partition_key, e.execution_id) = (l.partition_key, l.execution_id)
            OFFSET 0) AS e
     GROUP BY e.route_id
), going AS MATERIALIZED (       -- what workers hold, and what resumes in the queue
    SELECT routes.route_id, routes.lane_id, coalesce(held.active, 0) AS active,
           greatest(e.found - coalesce(held.resumed, 0), 0) AS resumable
      FROM routes LEFT JOIN held USING (route_id) CROSS JOIN LATERAL (
            SELECT count(*) AS found FROM (
                    SELECT FROM ff.exec_core e
                     WHERE e.resume_pending AND e.route_id = routes.route_id
                       AND e.eligibility_state = 'eligible_now'
                     LIMIT %(limit)s) AS e) AS e
), queued AS (
    SELECT going.lane_id, greatest(q.found - going.resumable, 0) AS found
      FROM going CROSS JOIN LATERAL (
            SELECT count(*) AS found FROM (
                    SELECT FROM ff.ready q WHERE q.route_id = going.route_id
                     LIMIT %(limit)s + going.resumable) AS q) AS q
), exceptional AS (
    SELECT routes.lane_id, asked.state, e.found
      FROM unnest(%(exceptional)s::text[]) AS asked (state) CROSS JOIN routes CROSS JOIN LATERAL (
            SELECT count(*) AS found FROM (
                    SELECT FROM ff.exec_core e
                     WHERE e.exceptional_state = asked.state AND e.route_id = routes.route_id
                     LIMIT %(limit)s) AS e) AS e
)
SELECT lane_id, state, sum(found)::bigint AS found FROM (
        SELECT lane_id, state, found FROM exceptional
         UNION ALL
        SELECT lane_id, 'active', active FROM going
         UNION ALL
        SELECT lane_id, 'resumable', resumable FROM going
         UNION ALL
        SELECT lane_id, 'waiting', found FROM queued) AS counted
 GROUP BY lane_id, state ORDER BY lane_id
"""

OPEN_STATES: Final = tuple(state for state in PublicState if not state.is_terminal)


class LaneStates(msgspec.Struct, frozen=True, kw_only=True):
    """One lane, and how many of its executions are in each state that is not an end."""

    lane_id: str
    counts: dict[PublicState, MatchCount]


class _Row(msgspec.Struct, frozen=True):
    lane_id: str
    state: str
    found: int


async def count_by_state(
    conn: Connection,
    *,
    namespace: str | None = None,
    lane_id: str | None = None,
    execution_kinds: Sequence[str] = (),
    at_most: int = 1_000,
) -> list[LaneStates]:
    """Each lane that has had executions, with how many are in each open state, up to `at_most`.

    None, or no kind, counts those of any; ended executions are not counted. Raises
    `ValidationError(invalid_input)` for an invalid lane, for more than 100 kinds, and unless
    `at_most` is 1 to 100,000.
    """
    check_limit(at_most, at_most=MOST, field="at_most")
    if lane_id is not None:
        check_lane(lane_id)
    if namespace is not None:
        storable_text(namespace, field="namespace")
    if len(execution_kinds) > MAX_KINDS:
        raise invalid_input("execution_kinds", len(execution_kinds), f"at most {MAX_KINDS}")
    words = {word: state for state in OPEN_STATES for word in EXCEPTIONAL_STATES.get(state, ())}
    rows = await fetch_all(
        conn,
        COUNT_BY_STATE,
        _Row,
        namespace=namespace,
        lane_id=lane_id,
        execution_kinds=[storable_text(each, field="execution_kind") for each in execution_kinds]
        or None,
        exceptional=list(words),
        limit=at_most + 1,
    )
    lanes: dict[str, dict[PublicState, int]] = {}
    for row in rows:
        found = lanes.setdefault(row.lane_id, dict.fromkeys(OPEN_STATES, 0))
        found[words[row.state] if row.state in words else PublicState(row.state)] += row.found
    return [
        LaneStates(
            lane_id=lane_id,
            counts={
                state: MatchCount(count=min(count, at_most), more=count > at_most)
                for state, count in found.items()
            },
        )
        for lane_id, found in lanes.items()
    ]


def in_all_lanes(lanes: Sequence[LaneStates]) -> dict[PublicState, MatchCount]:
    """The counts of all the lanes together."""
    return {
        state: MatchCount(
            count=sum(lane.counts[state].count for lane in lanes),
            more=any(lane.counts[state].more for lane in lanes),
        )
        for state in OPEN_STATES
    }
