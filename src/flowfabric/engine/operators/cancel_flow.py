"""A flow is cancelled with its members, as far as its cancellation policy goes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final
from uuid import UUID

from flowfabric.db.pool import Pool
from flowfabric.db.transaction import transact
from flowfabric.engine.flows.cancel_backlog import AT_ONCE
from flowfabric.engine.flows.cancel_flow_header import (
    DEFAULT_GRACE,
    FlowAlreadyCancelled,
    FlowCancelAccepted,
    cancel_flow_header,
)
from flowfabric.engine.flows.end_cancelled_members import end_cancelled_members
from flowfabric.engine.joins.dispatch import dispatch
from flowfabric.errors import OperationTimeout
from flowfabric.states import CancellationPolicy

MAX_WAIT: Final = 300.0
END_AT_ONCE: Final = 1000
"""A flow with at most so many members left ends them in the transaction that cancels it."""


async def cancel_flow(
    pool: Pool,
    flow_id: UUID,
    *,
    reason: str = "",
    policy: CancellationPolicy | str = CancellationPolicy.CANCEL_ALL,
    grace: float | timedelta = DEFAULT_GRACE,
    requester: str = "operator",
    wait: float | timedelta | None = MAX_WAIT,
    partitions: int = 256,
) -> FlowCancelAccepted | FlowAlreadyCancelled:
    """The flow is cancelled, and the members that its policy ends have ended.

    The first transaction cancels the flow itself, together with its members if all are to end and
    they are few; other members end in batches. `wait` bounds the time for those batches (None:
    leave them to the reconciler); when that time is over `OperationTimeout` is raised and the flow
    stays cancelled. Where some members go on, the completions of the ended ones are dispatched at
    once; where all end, the sweeps settle the counters. Raises as `cancel_flow_header`.
    """
    header = await transact(
        pool,
        "cancel_flow_header",
        lambda conn: cancel_flow_header(
            conn,
            flow_id,
            reason=reason,
            policy=policy,
            grace=grace,
            requester=requester,
            end_at_once=0 if wait is None else END_AT_ONCE,
            partitions=partitions,
        ),
    )
    if wait is None or (isinstance(header, FlowCancelAccepted) and not header.cancel_pending):
        return header
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    try:
        async with asyncio.timeout(min(seconds, MAX_WAIT)):
            await _end_members(pool, flow_id, partitions)
            if policy != CancellationPolicy.CANCEL_ALL:
                await dispatch(pool)
    except TimeoutError:
        raise OperationTimeout("cancel_flow", seconds) from None
    return header


async def _end_members(pool: Pool, flow_id: UUID, partitions: int) -> None:
    """End the members in the flow's backlog, a batch for each transaction."""
    ended = AT_ONCE
    while ended == AT_ONCE:
        ended = await transact(
            pool,
            "end_cancelled_members",
            lambda conn: end_cancelled_members(conn, flow_id, partitions=partitions),
        )
