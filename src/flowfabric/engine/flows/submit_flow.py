"""A flow exists with all its members and edges, or with nothing of it."""

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
    """The flow exists with all members and edges.

    A member with upstreams is not claimable before its join is satisfied. The same flow id again
    changes nothing. Raises what `NewFlow.check` raises, `LaneNotAccepting`, `ValidationError` if
    the id of a member is taken, and `IdempotencyConflict` if the flow of the idempotency key has
    another kind or other members, unless `on_conflict` is `return`.
    """
    [answer] = await submit_flows(conn, [flow], partitions=partitions)
    if isinstance(answer, EngineError):
        raise answer
    return answer


async def submit_flows(
    conn: Connection, flows: Sequence[NewFlow], *, partitions: int = 256
) -> list[FlowSubmitted | EngineError]:
    """Each flow exists as by `submit_flow`, or its error is returned, in the order given.

    Raises `LaneNotAccepting` for the lane of any member, and then no flow is created. Raises
    `ValidationError` if the id of a member was taken while the statement ran; in a transaction no
    flow is created then either.
    """
    submission = Submission(flows, partitions=partitions)
    if not submission.flows:
        return submission.answers([])
    return submission.answers(
        await fetch_all(conn, SUBMIT_FLOWS, SubmissionRow, **submission.columns())
    )
