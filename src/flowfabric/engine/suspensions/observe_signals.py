"""The signals that resumed an attempt, as its handler sees them."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.conditions import Signal
from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.waitpoint import decode_signals

OBSERVE_SIGNALS: Final[LiteralString] = """
-- suspensions.observe_signals
SELECT all_satisfier_signals AS signals FROM ff.suspension_current
 WHERE (partition_key, execution_id, attempt_index)
     = (%(partition_key)s, %(execution_id)s, %(attempt_index)s)
   AND closed_at_ms IS NOT NULL
"""


class _Row(msgspec.Struct, frozen=True):
    signals: str | None


async def observe_signals(conn: Connection, lease: Lease) -> list[Signal]:
    """The signals that satisfied the last suspension of this attempt, in the order of arrival.

    A suspension that its timeout resumed has one signal, `timeout`. There is none if an operator,
    an end, or something else than a waitpoint resumed the attempt.
    """
    row = await fetch_maybe(
        conn,
        OBSERVE_SIGNALS,
        _Row,
        partition_key=lease.execution_id.partition_key,
        execution_id=lease.execution_id.uuid,
        attempt_index=lease.attempt_index,
    )
    signals = decode_signals(None if row is None else row.signals)
    return [each.signal() for each in sorted(signals, key=lambda each: each.accepted_at)]
