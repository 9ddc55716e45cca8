"""The limit of an execution that is claimed by its id has room, and counts the start."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.counters import QUOTA_HITS
from flowfabric.db.rows import Connection, fetch_one
from flowfabric.errors import ExecutionNotLeaseable
from flowfabric.ids import ExecutionId

ADMIT_BY_KEY: Final[LiteralString] = """
-- lifecycle.admit_by_key
SELECT ff.admit_by_key(%(quota_key_id)s) AS refusal
"""


class _Answer(msgspec.Struct, frozen=True):
    refusal: str | None


async def admit_by_key(
    conn: Connection, execution_id: ExecutionId, quota_key_id: int | None
) -> None:
    """The key is locked until the transaction ends, so nobody else gets the last slot of it.

    Raises `ExecutionNotLeaseable`, which names the limit, if there is no room. Nothing happens for
    an execution without a limit.
    """
    if quota_key_id is None:
        return
    answer = await fetch_one(conn, ADMIT_BY_KEY, _Answer, quota_key_id=quota_key_id)
    if answer.refusal is not None:
        QUOTA_HITS.add("rate" if "starts" in answer.refusal else "concurrency")
        raise ExecutionNotLeaseable(execution_id, answer.refusal)
