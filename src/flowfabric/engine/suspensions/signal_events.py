"""Each accepted signal leaves one event in its outbox; a duplicate leaves none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.states import SignalEffect

EVENTS_RECORDED: Final[LiteralString] = """
INSERT INTO ff.signal_event (
       execution_id, signal_id, waitpoint_id, route_id, lease_epoch, occurred_at_ms, partition_key,
       signal_name, effect, source_type, source_identity, tags)
SELECT e.execution_id, named.signal_id, named.waitpoint_id, e.route_id, e.lease_epoch, ff.now_ms(),
       e.partition_key, named.signal_name, named.effect, named.source_type, named.source_identity,
       nullif(e.tags, '{}')
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[], %(signal_id)s::uuid[],
              %(waitpoint_id)s::uuid[], %(signal_name)s::text[], %(effect)s::text[],
              %(source_type)s::text[], %(source_identity)s::text[]) WITH ORDINALITY
       AS named (partition_key, execution_id, signal_id, waitpoint_id, signal_name, effect,
                 source_type, source_identity, ordinal)
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT x.partition_key, x.execution_id, x.route_id, x.lease_epoch, x.tags
         FROM ff.execution x
        WHERE (x.partition_key, x.execution_id) = (named.partition_key, named.execution_id)
       OFFSET 0) AS e
 ORDER BY named.ordinal
RETURNING (SELECT ff.wake('signal'))
"""
"""One event for each signal of `event_columns`; also the end of a statement that stores them."""

RECORD_SIGNAL_EVENTS: Final[LiteralString] = (
    """
-- suspensions.record_signal_events"""
    + EVENTS_RECORDED
)


class NewSignalEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One signal that was accepted, and what it did; `waitpoint_id` is None if sent by name."""

    execution_id: ExecutionId
    signal_id: UUID
    signal_name: str
    effect: SignalEffect
    source_type: str
    source_identity: str
    waitpoint_id: UUID | None = None


async def record_signal_events(conn: Connection, events: Sequence[NewSignalEvent]) -> None:
    """One event for each signal, in the order given; the readers of the outbox are woken.

    The caller holds the locks of `lock_executions`. If the signal resumes its execution, this is
    called before `lifecycle.resume`, so that the event is not later than that of the resume.
    """
    if not events:
        return
    await execute(conn, RECORD_SIGNAL_EVENTS, **event_columns(events))


def event_columns(events: Sequence[NewSignalEvent]) -> dict[str, list[Any]]:
    """The events as the array parameters of `EVENTS_RECORDED`."""
    return {
        "signal_id": [each.signal_id for each in events],
        "waitpoint_id": [each.waitpoint_id for each in events],
        "signal_name": [each.signal_name for each in events],
        "effect": [each.effect.value for each in events],
        "source_type": [each.source_type for each in events],
        "source_identity": [each.source_identity for each in events],
        **id_columns([each.execution_id for each in events]),
    }
