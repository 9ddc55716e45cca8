"""Executions of a schedule that wait for their turn: the next one runs when those before ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all, fetch_maybe
from flowfabric.engine.lifecycle.lock_executions import lock_and_read, lock_executions
from flowfabric.engine.lifecycle.unblock import unblock
from flowfabric.engine.schedules.open_executions import OPEN_OF_SCHEDULE, open_executions
from flowfabric.ids import ExecutionId
from flowfabric.states import EligibilityState

# The oldest execution that has not ended waits for its turn, or none does any more.
_TURN: Final[LiteralString] = f"""
  FROM (SELECT s.partition_key, s.namespace, s.name, {OPEN_OF_SCHEDULE}
          FROM ff.schedule s WHERE s.queued) AS found
 WHERE found.open[1] LIKE 'held%%' OR NOT array_to_string(found.open, ' ') LIKE '%%held%%'
"""

TURNS_DUE: Final[LiteralString] = f"""
-- schedules.turns_due
SELECT found.name {_TURN} LIMIT 1
"""

LOCK_TURNS: Final[LiteralString] = f"""
-- schedules.release_queued: locks
SELECT turn.partition_key, turn.namespace, turn.name
  FROM (SELECT found.partition_key, found.namespace, found.name {_TURN} LIMIT %(limit)s) AS turn
 CROSS JOIN LATERAL (SELECT FROM ff.schedule s
                      WHERE (s.partition_key, s.namespace, s.name)
                          = (turn.partition_key, turn.namespace, turn.name)
                     OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED) AS locked
"""

READ_TURNS: Final[LiteralString] = f"""
-- schedules.release_queued
SELECT s.partition_key, s.namespace, s.name, {OPEN_OF_SCHEDULE}
  FROM unnest(%(partition_key)s::smallint[], %(namespace)s::text[], %(name)s::text[])
       AS named (partition_key, namespace, name)
  JOIN ff.schedule s USING (partition_key, namespace, name)
"""

NOT_QUEUED: Final[LiteralString] = """
-- schedules.release_queued: those of which none waits
UPDATE ff.schedule s SET queued = false
  FROM unnest(%(partition_key)s::smallint[], %(namespace)s::text[], %(name)s::text[])
       AS named (partition_key, namespace, name)
 WHERE (s.partition_key, s.namespace, s.name) = (named.partition_key, named.namespace, named.name)
"""


class _Key(msgspec.Struct, frozen=True):
    partition_key: int
    namespace: str
    name: str


class _Turn(_Key, frozen=True):
    open: list[str]


class _Name(msgspec.Struct, frozen=True):
    name: str


async def turns_due(conn: Connection) -> bool:
    """Has an execution that waits for its turn its turn?"""
    return await fetch_maybe(conn, TURNS_DUE, _Name) is not None


async def release_queued(conn: Connection, limit: int) -> int:
    """Of at most `limit` schedules the next execution that waits can be claimed; how many.

    Needs a transaction. The next one is the oldest, once every one before it has ended.
    """
    locked = await fetch_all(conn, LOCK_TURNS, _Key, limit=limit)
    if not locked:
        return 0
    # A second statement: it sees what was committed before the schedules were locked.
    turns = await fetch_all(conn, READ_TURNS, _Turn, **_columns(locked))
    waiting = [(turn, open_executions(turn.open)) for turn in turns]
    heads = [each[0].execution_id for _, each in waiting if each and each[0].held]
    released = await release_held(conn, heads, pass_over_locked=True)
    done = [
        turn
        for turn, each in waiting
        if not any(one.held and one.execution_id not in released for one in each)
    ]
    if done:
        await execute(conn, NOT_QUEUED, **_columns(done))
    return len(released) + sum(not each or not each[0].held for _, each in waiting)


async def release_held(
    conn: Connection, executions: Sequence[ExecutionId], *, pass_over_locked: bool = False
) -> set[ExecutionId]:
    """Those of the executions that wait for their turn can be claimed; which.

    With `pass_over_locked` without those that another transaction has locked.
    """
    locked = await lock_executions(conn, executions, pass_over_locked=pass_over_locked)
    rows = await lock_and_read(conn, locked)
    held = [
        each.id
        for each in rows.values()
        if each.eligibility_state == EligibilityState.BLOCKED_BY_QUOTA
    ]
    if held:
        await unblock(conn, sorted(held))
    return set(held)


def _columns(keys: Sequence[_Key]) -> dict[str, list[object]]:
    return {
        "partition_key": [each.partition_key for each in keys],
        "namespace": [each.namespace for each in keys],
        "name": [each.name for each in keys],
    }
