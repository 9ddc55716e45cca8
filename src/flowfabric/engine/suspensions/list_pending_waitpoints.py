"""The open waitpoints of one execution, page by page, without their tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.pages import FIRST_ID, MAX_PAGE
from flowfabric.states import WaitpointState
from flowfabric.tokens import WaitpointToken

LIST_PENDING_WAITPOINTS: Final[LiteralString] = """
-- suspensions.list_pending_waitpoints
SELECT w.waitpoint_id, w.waitpoint_key, w.state, w.required_signal_names, w.created_at_ms,
       w.activated_at_ms, w.expires_at_ms, w.token_kid, w.token
  FROM ff.exec_core e
  LEFT JOIN ff.waitpoint_pending w   -- one row without a waitpoint, if there is none
    ON w.execution_id = e.execution_id AND w.partition_key = e.partition_key
   AND w.state <> 'closed' AND w.waitpoint_id > %(after)s AND e.lifecycle_phase <> 'terminal'
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
 ORDER BY w.waitpoint_id LIMIT %(limit)s
"""


class PendingWaitpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An open waitpoint; by `token_fingerprint` people compare tokens without seeing them.

    `required_signal_names` are those that count for the open suspension; empty means any.
    """

    execution_id: ExecutionId
    waitpoint_id: UUID
    waitpoint_key: str
    state: WaitpointState
    required_signal_names: tuple[str, ...]
    created_at: datetime
    activated_at: datetime | None
    expires_at: datetime | None
    token_kid: str
    token_fingerprint: str | None


class PendingWaitpointPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some open waitpoints, and the cursor for the next page if there is one."""

    waitpoints: list[PendingWaitpoint]
    next_cursor: UUID | None


class _Row(msgspec.Struct, frozen=True):
    waitpoint_id: UUID | None
    waitpoint_key: str
    state: str
    required_signal_names: list[str]
    created_at_ms: int
    activated_at_ms: int | None
    expires_at_ms: int | None
    token_kid: str
    token: str

    def __repr__(self) -> str:
        return f"_Row(waitpoint_id={self.waitpoint_id!r})"


async def list_pending_waitpoints(
    conn: Connection, execution_id: ExecutionId, *, after: UUID | None = None, limit: int = 100
) -> PendingWaitpointPage:
    """At most `limit` (clamped to 1 to 1000) open waitpoints after that id, by id.

    Raises `NotFound` if the execution does not exist.
    """
    if type(limit) is not int:
        raise invalid_input("limit", limit, "must be a whole number")
    size = min(max(limit, 1), MAX_PAGE)
    rows = await fetch_all(
        conn,
        LIST_PENDING_WAITPOINTS,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        after=FIRST_ID if after is None else after,
        limit=size + 1,
    )
    if not rows:
        raise NotFound("execution", execution_id)
    waitpoints = [
        PendingWaitpoint(
            execution_id=execution_id,
            waitpoint_id=row.waitpoint_id,
            waitpoint_key=row.waitpoint_key,
            state=WaitpointState(row.state),
            required_signal_names=tuple(row.required_signal_names),
            created_at=instant(row.created_at_ms),
            activated_at=instant(row.activated_at_ms),
            expires_at=instant(row.expires_at_ms),
            token_kid=row.token_kid,
            token_fingerprint=WaitpointToken(row.token).fingerprint,
        )
        for row in rows[:size]
        if row.waitpoint_id is not None
    ]
    more = len(rows) > size
    return PendingWaitpointPage(
        waitpoints=waitpoints, next_cursor=waitpoints[-1].waitpoint_id if more else None
    )
