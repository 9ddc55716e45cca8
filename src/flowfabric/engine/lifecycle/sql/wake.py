"""Wake-ups inside a statement: `ff.wake` once for each topic, and only if rows were written.

Each fragment is a scalar subquery without a reference to the row around it. Postgres runs such a
subquery at most once in a statement, when the first row needs its value. In the RETURNING clause
of an INSERT it therefore runs exactly once if a row was inserted, and not at all otherwise. A CTE
for it would be a SELECT, which Postgres skips unless something reads it.
"""

from __future__ import annotations

from typing import Final, LiteralString

WAKE_COMPLETION: Final[LiteralString] = "(SELECT ff.wake('completion'))"
"""For the clients that wait for an execution to end, and the readers of completions."""

WAKE_COMPLETION_IF_ASKED: Final[LiteralString] = (
    "(SELECT ff.wake('completion') WHERE %(notifies)s::boolean)"
)
"""The same, unless another statement notifies for this one too: see `db.notifier`."""

WAKE_LEASE: Final[LiteralString] = "(SELECT ff.wake('lease'))"
"""For the readers of the lease history."""


WAKE_ATTEMPT: Final[LiteralString] = "(SELECT ff.wake('attempt'))"
"""For the readers of streams: an attempt has stopped, and its execution goes on."""


def wake_holders(source: LiteralString) -> LiteralString:
    """For the workers that held the leases of these rows; how many workers there are."""
    return f"""(
        SELECT count(ff.wake('worker:' || worker_instance_id))
          FROM (SELECT DISTINCT worker_instance_id
                  FROM {source} WHERE worker_instance_id IS NOT NULL) AS holders)"""


def wake_lanes(source: LiteralString, *, where: LiteralString = "true") -> LiteralString:
    """For the workers that wait for work on the lanes of these rows; how many lanes there are."""
    return f"""(
        SELECT count(ff.wake('lane:' || lane_id))
          FROM (SELECT DISTINCT route.lane_id
                  FROM {source} JOIN ff.route route USING (route_id)
                 WHERE {where}) AS lanes)"""
