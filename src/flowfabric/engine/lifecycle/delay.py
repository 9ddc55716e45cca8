"""active → runnable(delayed): the holder parks the attempt until a moment and lets go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import REFUSED, SEEN, Sighting, verdicts
from flowfabric.engine.lifecycle.sql.requeue import CALLED, RELINQUISH
from flowfabric.errors import Refusal, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.policy import milliseconds

DELAY: Final[LiteralString] = (
    """
-- lifecycle.delay
WITH held AS (        -- what the callers believe they hold, and until when they rest
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(attempt_index)s::integer[], %(lease_epoch)s::bigint[],
                         %(lease_id)s::uuid[], %(until_ms)s::bigint[], %(wait_ms)s::bigint[])
              WITH ORDINALITY
        AS held (held_partition, held_execution, held_attempt, held_epoch, held_lease, given_ms,
                 wait_ms, ordinal)
), """
    + SEEN
    + """, leaving AS (
    SELECT seen.*, coalesce(seen.given_ms, ff.now_ms() + seen.wait_ms) AS until_ms,
           'waiting_for_delay' AS waiting_for, 'interrupted' AS attempt_outcome,
           'attempt_interrupted' AS next_attempt_state, false AS retries, false AS rotates,
           false AS loses, 'revoked' AS lease_event, 'delay' AS lease_reason,
           NULL::text AS failure_reason, NULL::text AS failure_category,
           NULL::text AS failure_detail
      FROM seen WHERE holds
), """
    + RELINQUISH
    + REFUSED
    + "(SELECT ordinal FROM left_over) AND "
    + CALLED
)


class DelayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of `lease` rests until a moment, or for a while from now."""

    lease: Lease
    delay_until: datetime | None = None
    delay: float | timedelta | None = None


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt is interrupted; it goes on, under the same index, when its time has come."""

    execution_id: ExecutionId


async def delay(conn: Connection, rests: Sequence[DelayRequest]) -> list[Delayed | Refusal]:
    """Park every attempt whose lease is still held, in the order given.

    A moment that has passed still parks, until the next promotion.
    """
    for rest in rests:
        if (rest.delay is None) == (rest.delay_until is None):
            raise invalid_input(
                "delay_until", rest.delay_until, "or delay, and only one, must be given"
            )
        if rest.delay_until is not None:
            check_instant(rest.delay_until, field="delay_until")
    leases = [rest.lease for rest in rests]
    refused = await fetch_all(
        conn,
        DELAY,
        Sighting,
        until_ms=[
            None if rest.delay_until is None else epoch_ms(rest.delay_until) for rest in rests
        ],
        wait_ms=[None if rest.delay is None else milliseconds(rest.delay) for rest in rests],
        **fence_columns(leases),
    )
    return verdicts(leases, refused, done=_done)


def _done(lease: Lease) -> Delayed:
    return Delayed(execution_id=lease.execution_id)
