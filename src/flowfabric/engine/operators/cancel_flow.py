"""A flow is cancelled with its members, as far as its cancellation policy goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.db.pool import Pool
from flowfabric.db.transaction import run, transact
from flowfabric.engine.flows.cancel_backlog import (
    AT_ONCE,
    count_pending_members,
    hand_over_backlog,
)
from flowfabric.engine.flows.cancel_flow_header import (
    DEFAULT_GRACE,
    FlowAlreadyCancelled,
    FlowCancelAccepted,
    cancel_flow_header,
)
from flowfabric.engine.flows.end_cancelled_members import end_cancelled_members
from flowfabric.engine.joins.dispatch import dispatch
from flowfabric.errors import FlowCancelPending, FlowFabricError, OperationTimeout
from flowfabric.ids import uuid_partition
from flowfabric.states import CancellationPolicy

MAX_WAIT: Final = 300.0
END_AT_ONCE: Final = 1000
"""A flow with at most so many members left ends them in the transaction that cancels it."""
_HEADER_WITHIN: Final = 1.0
"""The flow itself is cancelled even if the caller has no time to wait for its members."""
_LAST_WORDS_WITHIN: Final = 0.5
_POLL: Final = 0.1


async def cancel_flow(
    pool: Pool,
    flow_id: UUID,
    *,
    reason: str = "",
    policy: CancellationPolicy | str = CancellationPolicy.CANCEL_ALL,
    grace: float | timedelta = DEFAULT_GRACE,
    requester: str = "operator",
    wait: float | timedelta | None = MAX_WAIT,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> FlowCancelAccepted | FlowAlreadyCancelled:
    """The flow is cancelled, and the members that its policy ends have ended.

    The first transaction cancels the flow itself, together with its members if all are to end and
    they are few; other members end in batches. Neither waits for a member that another transaction
    has locked: such a member is pending, and is looked at again until it has ended.

    `wait` bounds the whole call (None: leave pending members to the reconciler). When that time is
    over, `FlowCancelPending` says how many members are pending: the flow stays cancelled, the
    reconciler ends them, and none of their downstreams runs. `OperationTimeout` means that the flow
    itself is locked and was not cancelled. Where some members go on, the completions of the ended
    ones are dispatched at once; where all end, the sweeps settle the counters. Raises as
    `cancel_flow_header`.
    """
    clock = asyncio.get_running_loop().time
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    began = clock()
    try:
        async with asyncio.timeout(None if seconds is None else max(seconds, _HEADER_WITHIN)):
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
                    expected_last_mutation_at=expected_last_mutation_at,
                    namespaces=namespaces,
                    partitions=partitions,
                ),
            )
    except TimeoutError:
        raise OperationTimeout("cancel_flow", seconds) from None
    if seconds is None or (isinstance(header, FlowCancelAccepted) and not header.cancel_pending):
        return header
    try:
        async with asyncio.timeout_at(began + min(seconds, MAX_WAIT)):
            await _end_members(pool, flow_id, partitions)
            if policy != CancellationPolicy.CANCEL_ALL:
                await dispatch(pool)
    except TimeoutError:
        pending = await _hand_over(pool, flow_id, partitions)
        raise FlowCancelPending(flow_id, seconds, pending) from None
    if isinstance(header, FlowCancelAccepted):
        return msgspec.structs.replace(header, cancel_pending=0)
    return header


async def _end_members(pool: Pool, flow_id: UUID, partitions: int) -> None:
    """End the members in the flow's backlog, a batch for each transaction, until it has none."""
    home = uuid_partition(flow_id, partitions)
    while True:
        ended = await transact(
            pool,
            "end_cancelled_members",
            lambda conn: end_cancelled_members(conn, flow_id, partitions=partitions),
        )
        if ended == AT_ONCE:
            continue
        if not await run(
            pool, "count_pending_members", lambda conn: count_pending_members(conn, home, flow_id)
        ):
            return
        await asyncio.sleep(_POLL)


async def _hand_over(pool: Pool, flow_id: UUID, partitions: int) -> int | None:
    """Leave the backlog to the reconciler; how many members it lists, None if that is unknown."""
    home = uuid_partition(flow_id, partitions)
    with contextlib.suppress(TimeoutError, FlowFabricError):
        async with asyncio.timeout(_LAST_WORDS_WITHIN):
            await run(pool, "hand_over", lambda conn: hand_over_backlog(conn, home, flow_id))
            return await run(
                pool,
                "count_pending_members",
                lambda conn: count_pending_members(conn, home, flow_id),
            )
    return None
