"""What the holder of the token of a waitpoint is asked."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.suspensions.verify_waitpoint_token import verify_waitpoint_token
from flowfabric.engine.suspensions.waitpoint import decode_schema, decode_signals
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.tokens import WaitpointToken

QUESTION_TAG: Final = "ff.question"
"""The tag of an execution that says what people are asked."""

READ_QUESTION: Final[LiteralString] = """
-- suspensions.read_question
SELECT w.waitpoint_key, w.required_signal_names, w.expires_at_ms, w.created_at_ms,
       w.closed_at_ms, w.signals, w.answer_schema::text AS answer_schema, r.execution_kind,
       e.tags ->> 'ff.question' AS question,
       w.state <> 'closed' AND e.lifecycle_phase <> 'terminal'
           AND coalesce(w.expires_at_ms > ff.now_ms(), true) AS open
  FROM ff.waitpoint_pending w
  JOIN ff.execution e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE (w.partition_key, w.waitpoint_id) = (%(partition_key)s, %(waitpoint_id)s)
   AND w.execution_id = %(execution_id)s
"""


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that has arrived: its name, who sent it, and when."""

    signal_name: str
    source_identity: str
    accepted_at: datetime


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, which signals are answers, and those that were given."""

    question: str | None
    """As the tag `ff.question` of the execution says it."""
    waitpoint_key: str
    execution_kind: str
    required_signal_names: tuple[str, ...]
    """Those that count; empty means any."""
    open: bool
    """Is an answer still taken?"""
    created_at: datetime
    expires_at: datetime | None
    closed_at: datetime | None
    answers: tuple[GivenAnswer, ...]
    answer_schema: dict[str, Any] | None = None
    """JSON schema of the payload that is asked for."""


class _Row(msgspec.Struct, frozen=True):
    waitpoint_key: str
    required_signal_names: list[str]
    expires_at_ms: int | None
    created_at_ms: int
    closed_at_ms: int | None
    signals: str
    answer_schema: str | None
    execution_kind: str
    question: str | None
    open: bool


async def read_question(
    conn: Connection, execution_id: ExecutionId, waitpoint_id: UUID, token: WaitpointToken | str
) -> Question:
    """The question of the waitpoint, open or closed; raises what `verify_waitpoint_token` does."""
    await verify_waitpoint_token(conn, execution_id, waitpoint_id, token)
    row = await fetch_one(
        conn,
        READ_QUESTION,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        waitpoint_id=waitpoint_id,
    )
    return Question(
        question=row.question,
        waitpoint_key=row.waitpoint_key,
        execution_kind=row.execution_kind,
        required_signal_names=tuple(row.required_signal_names),
        open=row.open,
        created_at=instant(row.created_at_ms),
        expires_at=instant(row.expires_at_ms),
        closed_at=instant(row.closed_at_ms),
        answer_schema=decode_schema(row.answer_schema),
        answers=tuple(
            GivenAnswer(
                signal_name=each.signal_name,
                source_identity=each.source_identity,
                accepted_at=instant(each.accepted_at),
            )
            for each in decode_signals(row.signals)
        ),
    )
