"""How far a change of many executions is."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.bulk.action import BulkArguments
from flowfabric.errors import NotFound
from flowfabric.instants import instant
from flowfabric.states import BulkActionKind, BulkState

COLUMNS: Final[LiteralString] = """bulk_id, namespace, action, arguments::text, filter::text,
       state, actor, reason, total, done, changed, repeated, refused::text, started_at_ms,
       last_batch_at_ms, ended_at_ms"""

READ_BULK_ACTION: Final[LiteralString] = f"""
-- bulk.read_bulk_action
SELECT {COLUMNS} FROM ff.bulk_action
 WHERE bulk_id = %(bulk_id)s AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
"""


class BulkAction(msgspec.Struct, frozen=True, kw_only=True):
    """A change of many executions."""

    bulk_id: UUID
    namespace: str | None
    """The namespace of all the executions; None: they may be in any."""
    action: BulkActionKind
    arguments: BulkArguments
    filter: dict[str, str]
    """What was searched for, in words; empty if the executions were named."""
    state: BulkState
    actor: str
    reason: str
    total: int
    done: int
    changed: int
    repeated: int
    """Those that were so before."""
    refused: dict[str, int]
    """Those that could not be changed, by the code of the error."""
    started_at: datetime
    last_batch_at: datetime | None
    ended_at: datetime | None


class BulkRow(msgspec.Struct, frozen=True):
    """The stored columns."""

    bulk_id: UUID
    namespace: str | None
    action: str
    arguments: str
    filter: str
    state: str
    actor: str
    reason: str
    total: int
    done: int
    changed: int
    repeated: int
    refused: str
    started_at_ms: int
    last_batch_at_ms: int | None
    ended_at_ms: int | None


def bulk_action(row: BulkRow) -> BulkAction:
    """The action of a stored row."""
    return BulkAction(
        bulk_id=row.bulk_id,
        namespace=row.namespace,
        action=BulkActionKind(row.action),
        arguments=msgspec.json.decode(row.arguments, type=BulkArguments),
        filter=msgspec.json.decode(row.filter, type=dict[str, str]),
        state=BulkState(row.state),
        actor=row.actor,
        reason=row.reason,
        total=row.total,
        done=row.done,
        changed=row.changed,
        repeated=row.repeated,
        refused=msgspec.json.decode(row.refused, type=dict[str, int]),
        started_at=instant(row.started_at_ms),
        last_batch_at=instant(row.last_batch_at_ms),
        ended_at=instant(row.ended_at_ms),
    )


async def read_bulk_action(
    conn: Connection, bulk_id: UUID, *, namespace: str | None = None
) -> BulkAction:
    """The action, of one namespace or of any; raises `NotFound(bulk_action)`."""
    row = await fetch_maybe(conn, READ_BULK_ACTION, BulkRow, bulk_id=bulk_id, namespace=namespace)
    if row is None:
        raise NotFound("bulk_action", bulk_id)
    return bulk_action(row)
