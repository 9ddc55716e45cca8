"""Does the caller have the token of the waitpoint? Nothing is locked, and little is revealed."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_maybe
from flowfabric.engine.keys.key import known_key
from flowfabric.errors import InvalidToken, NotFound, TokenExpired
from flowfabric.ids import ExecutionId
from flowfabric.tokens import WaitpointToken, parse_token, verify_token

READ_STORED: Final[LiteralString] = """
-- suspensions.verify_waitpoint_token
SELECT w.token
  FROM ff.exec_core e LEFT JOIN ff.waitpoint_pending w
    ON (w.partition_key, w.waitpoint_id, w.execution_id)
     = (e.partition_key, %(waitpoint_id)s::uuid, e.execution_id)
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""

# A row that is in use is passed over: what is lost is one instant among many failures. So that a
# flood of forged tokens costs little, a row is written once a second at most.
NOTE_FAILURE: Final[LiteralString] = """
-- suspensions.note_failed_token
WITH failed AS (
    SELECT partition_key, waitpoint_id FROM ff.waitpoint_pending
     WHERE (partition_key, waitpoint_id) = (%(partition_key)s, %(waitpoint_id)s)
       AND execution_id = %(execution_id)s
       AND coalesce(last_hmac_validation_failed_at_ms <= ff.now_ms() - 1000, true)
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE ff.waitpoint_pending w SET last_hmac_validation_failed_at_ms = ff.now_ms()
  FROM failed
 WHERE (w.partition_key, w.waitpoint_id) = (failed.partition_key, failed.waitpoint_id)
"""


class _Row(msgspec.Struct, frozen=True):
    token: str | None

    def __repr__(self) -> str:
        return "_Row(<REDACTED>)"


async def verify_waitpoint_token(
    conn: Connection, execution_id: ExecutionId, waitpoint_id: UUID, token: WaitpointToken | str
) -> None:
    """The token is that of the waitpoint of this execution, open or closed; it never changes.

    Raises `NotFound` for the execution alone, then `MissingToken`, `InvalidToken` for a text that
    is no token or names an unknown key, `TokenExpired` if the grace of its key is over, and
    `InvalidToken` if the waitpoint does not exist, belongs to another execution, or has another
    token: a caller without a valid token learns nothing about waitpoints.
    """
    row = await fetch_maybe(
        conn,
        READ_STORED,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        waitpoint_id=waitpoint_id,
    )
    if row is None:
        raise NotFound("execution", execution_id)
    known = await known_key(conn, parse_token(token).kid)
    if known is None:
        raise InvalidToken
    if not known.verifies:
        raise TokenExpired
    if row.token is None:
        raise InvalidToken
    stored = WaitpointToken(row.token)
    verify_token(known.key.secret, token, execution_id, waitpoint_id, stored=stored)


async def note_failed_token(
    conn: Connection,
    execution_id: ExecutionId,
    waitpoint_id: UUID,
    *_args: object,
    **_options: object,
) -> None:
    """The waitpoint, if it exists, has the time of the failure; further arguments are ignored."""
    await execute(
        conn,
        NOTE_FAILURE,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        waitpoint_id=waitpoint_id,
    )
