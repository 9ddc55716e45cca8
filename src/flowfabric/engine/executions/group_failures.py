"""What goes wrong: executions that failed, grouped by kind and by the form of their error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, check_lane, storable_text
from flowfabric.instants import instant
from flowfabric.pages import check_limit
from flowfabric.policy import milliseconds
from flowfabric.states import PublicState

MOST: Final = 10_000
_LANES: Final = 10
_SIGNATURE: Final = 200

GROUP_FAILURES: Final[LiteralString] = """
-- executions.group_failures
WITH routes AS MATERIALIZED (
    SELECT route_id, lane_id, execution_kind FROM ff.route
     WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
       AND (%(lane_id)s::text IS NULL OR lane_id = %(lane_id)s)
       AND (%(execution_kind)s::text IS NULL OR execution_kind = %(execution_kind)s)
)
SELECT e.partition_key, e.execution_id, routes.lane_id, routes.execution_kind,
       asked.state AS public_state, e.failure_category, e.failure_reason, e.terminal_at_ms
  FROM routes CROSS JOIN (VALUES ('failed'), ('expired')) AS asked (state)
 CROSS JOIN LATERAL (
        SELECT e.* FROM ff.exec_core e
         WHERE e.exceptional_state = asked.state AND e.route_id = routes.route_id
           AND e.created_at_ms >= ff.now_ms() - %(within_ms)s::bigint
         ORDER BY e.created_at_ms DESC, e.execution_id DESC LIMIT %(limit)s) AS e
 ORDER BY e.created_at_ms DESC, e.execution_id DESC LIMIT %(limit)s
"""

_VARYING: Final = (
    (re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "<uuid>"),
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "<text>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b"), "<hex>"),
    (re.compile(r"[0-9]+(?:\.[0-9]+)?"), "<n>"),
)
"""What differs between errors of one cause, and what stands for it."""


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Executions of one kind that ended with errors of one form."""

    execution_kind: str
    public_state: PublicState
    """`failed` or `expired`"""
    failure_category: str | None
    signature: str
    """The first line of the error, with what varies replaced."""
    count: int
    first_at: datetime
    last_at: datetime
    lanes: list[str]
    """At most ten."""
    sample: ExecutionId
    """The newest of them, and its error:"""
    sample_reason: str | None


class FailureGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups, the largest first, and how many executions they were made from."""

    groups: list[FailureGroup]
    looked_at: int
    more: bool
    """Were there more in the window?"""


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    lane_id: str
    execution_kind: str
    public_state: str
    failure_category: str | None
    failure_reason: str | None
    terminal_at_ms: int


async def group_failures(
    conn: Connection,
    *,
    window: float | timedelta,
    newest: int = 1000,
    namespace: str | None = None,
    lane_id: str | None = None,
    execution_kind: str | None = None,
) -> FailureGroups:
    """The causes of failure among the newest executions that failed or expired.

    Of those that were created within `window`, at most `newest` (10,000) are looked at. Raises
    `ValidationError(invalid_input)`.
    """
    check_limit(newest, at_most=MOST, field="newest")
    if lane_id is not None:
        check_lane(lane_id)
    for field, text in (("namespace", namespace), ("execution_kind", execution_kind)):
        if text is not None:
            storable_text(text, field=field)
    rows = await fetch_all(
        conn,
        GROUP_FAILURES,
        _Row,
        namespace=namespace,
        lane_id=lane_id,
        execution_kind=execution_kind,
        within_ms=milliseconds(window, field="window"),
        limit=newest + 1,
    )
    return FailureGroups(
        groups=_groups(rows[:newest]),
        looked_at=min(len(rows), newest),
        more=len(rows) > newest,
    )


def signature_of(reason: str | None) -> str:
    """The form of an error: its first line, with ids, numbers and quoted parts replaced."""
    lines = (reason or "").strip().splitlines()
    text = lines[0] if lines else ""
    for varying, word in _VARYING:
        text = varying.sub(word, text)
    return text[:_SIGNATURE]


def _groups(rows: Sequence[_Row]) -> list[FailureGroup]:
    groups: dict[tuple[str, str, str | None, str], list[_Row]] = {}
    for row in rows:
        signature = signature_of(row.failure_reason)
        key = (row.execution_kind, row.public_state, row.failure_category, signature)
        groups.setdefault(key, []).append(row)
    found = [
        FailureGroup(
            execution_kind=kind,
            public_state=PublicState(state),
            failure_category=category,
            signature=signature,
            count=len(members),
            first_at=instant(min(each.terminal_at_ms for each in members)),
            last_at=instant(max(each.terminal_at_ms for each in members)),
            lanes=sorted({each.lane_id for each in members})[:_LANES],
            sample=ExecutionId(members[0].partition_key, members[0].execution_id),
            sample_reason=members[0].failure_reason,
        )
        for (kind, state, category, signature), members in groups.items()
    ]
    return sorted(found, key=lambda group: (-group.count, group.execution_kind, group.signature))
