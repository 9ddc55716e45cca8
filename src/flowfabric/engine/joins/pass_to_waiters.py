"""Results of upstreams become inputs of the members that wait for them, whole or as an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.pass_arguments import pass_arguments
from flowfabric.engine.lifecycle.pass_results import pass_results
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.joins import ARGUMENT

READ_ARGUMENTS: Final[LiteralString] = """
-- joins.pass_to_waiters: which results become one argument
SELECT pairs.ordinal, substr(e.data_passing_ref, length(%(prefix)s::text) + 1) AS argument
  FROM unnest(%(partition_key)s::smallint[], %(upstream)s::uuid[], %(group_id)s::uuid[])
       WITH ORDINALITY AS pairs (partition_key, upstream, group_id, ordinal)
 CROSS JOIN LATERAL (  -- one row of a unique index, whatever statistics say
       SELECT e.data_passing_ref FROM ff.edge e
        WHERE (e.partition_key, e.upstream_eid, e.group_id)
            = (pairs.partition_key, pairs.upstream, pairs.group_id)
       OFFSET 0) AS e
 WHERE starts_with(e.data_passing_ref, %(prefix)s::text)
"""


class Passing(msgspec.Struct, frozen=True):
    """The result of `source` goes to `waiter`, over the edge between the source and the join."""

    source: ExecutionId
    group: GroupId
    waiter: ExecutionId


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    argument: str


async def pass_to_waiters(conn: Connection, passed: Sequence[Passing]) -> None:
    """The results are stored as the edges say; the caller has locked the waiters."""
    rows = await fetch_all(
        conn,
        READ_ARGUMENTS,
        _Row,
        partition_key=[each.group.partition_key for each in passed],
        upstream=[each.source.uuid for each in passed],
        group_id=[each.group.uuid for each in passed],
        prefix=ARGUMENT,
    )
    arguments = {row.ordinal - 1: row.argument for row in rows}
    whole = [
        (each.source, each.waiter) for place, each in enumerate(passed) if place not in arguments
    ]
    if whole:
        await pass_results(conn, whole)
    if arguments:
        await pass_arguments(
            conn,
            [
                (passed[place].source, passed[place].waiter, argument)
                for place, argument in sorted(arguments.items())
            ],
        )
