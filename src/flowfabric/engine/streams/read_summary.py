"""The summary of a stream: the document that its patches have made."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.streams.read_frames import check_attempt
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import PatchKind

READ_SUMMARY: Final[LiteralString] = """
-- streams.read_summary
SELECT attempt_index, document_json::text AS document_json, version, patch_kind, last_updated_ms,
       first_applied_ms
  FROM ff.stream_summary
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
   AND attempt_index = coalesce(%(attempt_index)s, attempt_index)
 ORDER BY attempt_index DESC LIMIT 1
"""


class StreamSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The document of one stream, after `version` patches."""

    attempt_index: int
    document_json: bytes
    version: int
    patch_kind: PatchKind
    last_updated_at: datetime
    first_applied_at: datetime

    @property
    def document(self) -> dict[str, Any]:
        return msgspec.json.decode(self.document_json)


class _Row(msgspec.Struct, frozen=True):
    attempt_index: int
    document_json: str
    version: int
    patch_kind: str
    last_updated_ms: int
    first_applied_ms: int


async def read_summary(
    conn: Connection, execution_id: ExecutionId, attempt_index: int
) -> StreamSummary | None:
    """The summary of one attempt; None if no summary frame was ever appended."""
    check_attempt(attempt_index)
    return await newest_summary(conn, execution_id, attempt_index)


async def newest_summary(
    conn: Connection, execution_id: ExecutionId, attempt_index: int | None
) -> StreamSummary | None:
    """The summary of this attempt, or with None that of the newest attempt that has one."""
    row = await fetch_maybe(
        conn,
        READ_SUMMARY,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        attempt_index=attempt_index,
    )
    if row is None:
        return None
    return StreamSummary(
        attempt_index=row.attempt_index,
        document_json=row.document_json.encode(),
        version=row.version,
        patch_kind=PatchKind(row.patch_kind),
        last_updated_at=instant(row.last_updated_ms),
        first_applied_at=instant(row.first_applied_ms),
    )
