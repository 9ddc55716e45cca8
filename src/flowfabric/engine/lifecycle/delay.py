"""active → runnable(delayed): the holder gives up its lease; the attempt goes on later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.entries import recorded
from flowfabric.engine.lifecycle.sql.fence import AppliedCall, answers, held_leases, holding
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.errors import Refusal, invalid_input
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.policy import milliseconds

DELAYED: Final[LiteralString] = (
    held_leases(
        arrays="%(until_ms)s::bigint[], %(wait_ms)s::bigint[], %(detail)s::text[]",
        names="given_ms, wait_ms, given_detail",
    )
    + holding("given_ms, wait_ms, given_detail")
    + requeue(
        "holding",
        until_ms="coalesce(given_ms, ff.now_ms() + wait_ms)",
        waiting_for="'waiting_for_delay'",
        detail="given_detail",
        attempt_outcome="'interrupted'",
        infra_releases="0",
        bumps_epoch="false",
        lease_reason="'delay'",
        by_holder=True,
    )
)
"""The CTEs that delay the executions whose leases are held; `requeued` are these."""

DELAY: Final[LiteralString] = (
    """
-- lifecycle.delay
"""
    + DELAYED
    + """
SELECT ordinal FROM requeued
"""
)

DELAY_AND_RECORD: Final[LiteralString] = (
    """
-- lifecycle.delay_and_record
"""
    + DELAYED
    + recorded("requeued")
    + """
SELECT ordinal FROM requeued
"""
)


class DelayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt goes on at `delay_until`, or after `delay`; exactly one is given.

    Checked when it is made: raises `ValidationError(invalid_input)`.
    """

    lease: Lease
    delay_until: datetime | None = None
    delay: float | timedelta | None = None
    detail: str | None = None
    """What the attempt waits for, in words; `explain` shows it."""

    def __post_init__(self) -> None:
        if (self.delay is None) == (self.delay_until is None):
            raise invalid_input(
                "delay_until", self.delay_until, "or delay, and only one, must be given"
            )
        if self.delay_until is not None:
            check_instant(self.delay_until, field="delay_until")
        if self.delay is not None:
            milliseconds(self.delay, field="delay")
        if self.detail is not None:
            msgspec.structs.force_setattr(self, "detail", clean_text(self.detail, at_most=1024))


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt is interrupted; it goes on, under the same index, once the delay is over."""

    execution_id: ExecutionId


async def delay(conn: Connection, requests: Sequence[DelayRequest]) -> list[Delayed | Refusal]:
    """Delay every execution whose lease is still held, in the order given.

    An instant in the past delays the execution until the next sweep promotes it.
    """
    requeued = await fetch_all(conn, DELAY, AppliedCall, **_columns(requests))
    return await _answers(conn, requests, requeued)


async def delay_and_record(
    conn: Connection, requests: Sequence[DelayRequest], entries: Mapping[str, Any]
) -> list[Delayed | Refusal]:
    """As `delay`; the entries of those that are delayed are in their journals.

    `entries` are array parameters, in which each names its request by number (`caller`, from 1).
    """
    columns = _columns(requests)
    requeued = await fetch_all(conn, DELAY_AND_RECORD, AppliedCall, **entries, **columns)
    return await _answers(conn, requests, requeued)


def _columns(requests: Sequence[DelayRequest]) -> dict[str, Any]:
    return {
        "until_ms": [
            None if request.delay_until is None else epoch_ms(request.delay_until)
            for request in requests
        ],
        "wait_ms": [
            None if request.delay is None else milliseconds(request.delay) for request in requests
        ],
        "detail": [request.detail for request in requests],
    } | fence_columns([request.lease for request in requests])


async def _answers(
    conn: Connection, requests: Sequence[DelayRequest], requeued: Sequence[AppliedCall]
) -> list[Delayed | Refusal]:
    leases = [request.lease for request in requests]
    return await answers(conn, leases, [row.ordinal for row in requeued], done=_done)


def _done(lease: Lease) -> Delayed:
    return Delayed(execution_id=lease.execution_id)
