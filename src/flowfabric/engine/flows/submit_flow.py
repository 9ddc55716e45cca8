"""A whole graph at once: a flow with its members and their edges, or nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.new_flow import NewFlow
from flowfabric.engine.flows.submission import (
    SUBMIT_FLOWS,
    FlowSubmitted,
    Submission,
    SubmissionRow,
)
from flowfabric.errors import EngineError


async def submit_flow(conn: Connection, flow: NewFlow, *, partitions: int = 256) -> FlowSubmitted:
    """The flow is there with all members and edges.

    Members that wait for others are not claimable before those have ended well. The same flow id
    again changes nothing. Raises what `NewFlow.check` raises, `LaneNotAccepting`, and
    `ValidationError` where a member's id is taken.
    """
    [answer] = await submit_flows(conn, [flow], partitions=partitions)
    if isinstance(answer, EngineError):
        raise answer
    return answer


async def submit_flows(
    conn: Connection, flows: Sequence[NewFlow], *, partitions: int = 256
) -> list[FlowSubmitted | EngineError]:
    """Each flow is there as by `submit_flow`, or why not, in the order given.

    Raises `LaneNotAccepting`, for one of them, and then none is there; so it is with the
    `ValidationError` for an id that was taken meanwhile, if this is a transaction.
    """
    submission = Submission(flows, partitions=partitions)
    if not submission.flows:
        return submission.answers([])
    return submission.answers(
        await fetch_all(conn, SUBMIT_FLOWS, SubmissionRow, **submission.columns())
    )
