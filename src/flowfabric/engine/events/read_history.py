"""The history of one execution, page by page: its submit, then its events, in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, Literal, LiteralString, TypeAlias, cast, get_args

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.events.history_order import HistoryOrder, HistoryRow, HistoryState
from flowfabric.engine.events.lease_events import lease_word
from flowfabric.engine.events.outbox import decoded_details
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.pages import MAX_PAGE, check_limit
from flowfabric.states import OperatorEventType


# Of each outbox as many events as a page can have; the page is merged from them. An execution has
# few completions, and the `+ 0` keeps the plan to these.
def _history(name: LiteralString, beyond: LiteralString, order: LiteralString) -> LiteralString:
    return (
        name
        + f"""
(SELECT l.occurred_at_ms, 'lease' AS outbox, l.event_type AS what, l.reason,
        l.worker_instance_id AS by, l.attempt_index, l.lease_epoch,
        CASE WHEN a.failure_reason IS NOT NULL
             THEN jsonb_build_object('error', a.failure_reason, 'category', a.failure_category) END
            AS details,
        l.event_id
   FROM ff.lease_event l
   LEFT JOIN ff.attempt a      -- the attempt that ended under this lease
     ON (a.partition_key, a.execution_id, a.attempt_index, a.lease_epoch)
      = (l.partition_key, l.execution_id, l.attempt_index, l.lease_epoch)
    AND l.event_type IN ('revoked', 'expired')
  WHERE l.execution_id = %(execution_id)s AND l.partition_key = %(partition_key)s
    AND l.event_id {beyond} %(lease)s AND %(leases)s
  ORDER BY l.event_id{order} LIMIT %(limit)s)
 UNION ALL
SELECT created_at_ms, 'execution', 'submitted', NULL, creator_identity, NULL, NULL,
       jsonb_strip_nulls(jsonb_build_object(
           'idempotency_key', idempotency_key, 'member_name', member_name)), 0
  FROM ff.exec_body
 WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s AND %(submit)s
 UNION ALL
(SELECT c.occurred_at_ms, 'completion', c.outcome, NULL, NULL, NULL, NULL, NULL, c.event_id
   FROM ff.exec_core e JOIN ff.completion_event c
     ON (c.route_id, c.created_at_ms, c.execution_id, c.partition_key)
      = (e.route_id, e.created_at_ms, e.execution_id, e.partition_key)
  WHERE e.execution_id = %(execution_id)s AND e.partition_key = %(partition_key)s
    AND c.event_id + 0 {beyond} %(completion)s AND %(completions)s
  ORDER BY c.event_id + 0{order} LIMIT %(limit)s)
 UNION ALL
(SELECT occurred_at_ms, 'operator', event_type, reason, actor, NULL, lease_epoch, details, event_id
   FROM ff.operator_event
  WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s
    AND event_id {beyond} %(operator)s AND %(operators)s
  ORDER BY event_id{order} LIMIT %(limit)s)
 UNION ALL
(SELECT occurred_at_ms, 'signal', effect, NULL, coalesce(nullif(source_identity, ''), source_type),
        NULL, lease_epoch,
        jsonb_strip_nulls(jsonb_build_object(
            'signal_name', signal_name, 'source_type', source_type, 'waitpoint_id', waitpoint_id)),
        event_id
   FROM ff.signal_event
  WHERE execution_id = %(execution_id)s AND partition_key = %(partition_key)s
    AND event_id {beyond} %(signal)s AND %(signals)s
  ORDER BY event_id{order} LIMIT %(limit)s)
"""
    )


READ_HISTORY: Final[LiteralString] = _history("\n-- events.read_history", ">", "")

READ_NEWEST: Final[LiteralString] = _history(
    "\n-- events.read_history: the newest first", "<", " DESC"
)

LOOK_AHEAD: Final = 20
"""Events after the page among which the replay of its last attempt is looked for."""

_CURSOR: Final = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})\.([0-3])")
_NEWEST_CURSOR: Final = re.compile(r"n([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})")
_END: Final = 2**63 - 1

OutboxName: TypeAlias = Literal["execution", "lease", "completion", "operator", "signal"]
OUTBOXES: Final[tuple[OutboxName, ...]] = get_args(OutboxName)


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of an execution; the first is its submit (`execution`, `submitted`).

    `what` is the type of a lease or operator event, the outcome of a completion, or the effect of a
    signal. A lease that its holder gave up itself is `released`, with the reason (`completed`,
    `retry`, …); `revoked` is one that was taken away. `by` is the client that submitted, the worker
    process that held the lease, the operator, or the source of the signal. `details` of a lease
    under which an attempt failed have its `error`, those of a signal its `signal_name`. A field
    that an event lacks is None.
    """

    at: datetime
    outbox: OutboxName
    what: str
    reason: str | None
    by: str | None
    attempt_index: int | None
    lease_epoch: int | None
    details: dict[str, Any]


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, and the cursor of the next page if there is one."""

    entries: list[HistoryEntry]
    next_cursor: str | None


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far a page has come: the last event of each outbox, and the state of the execution.

    As text it is the cursor of the next page.
    """

    lease: int = 0
    completion: int = 0
    operator: int = 0
    signal: int = 0
    state: HistoryState = HistoryState.OPEN

    def __str__(self) -> str:
        places = (self.lease, self.completion, self.operator, self.signal, self.state.value)
        return ".".join(str(place) for place in places)

    @classmethod
    def parse(cls, cursor: str) -> _Place:
        found = _CURSOR.fullmatch(cursor)
        numbers = [int(each) for each in found.groups()] if found is not None else [2**63]
        if max(numbers) >= 2**63:
            raise invalid_input("cursor", cursor, "must be the next_cursor of a page of a history")
        return cls(
            lease=numbers[0],
            completion=numbers[1],
            operator=numbers[2],
            signal=numbers[3],
            state=HistoryState(numbers[4]),
        )

    def after(self, row: HistoryRow, state: HistoryState) -> _Place:
        """The place after one more event."""
        if row.outbox == "execution":
            return self
        return msgspec.structs.replace(self, **{row.outbox: row.event_id}, state=state)


async def read_history(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    cursor: str | None = None,
    limit: int = MAX_PAGE,
    families: Sequence[OutboxName] = (),
    newest_first: bool = False,
) -> HistoryPage:
    """At most `limit` (1000) events from `cursor` on, in the order in which they were written.

    `families` are the outboxes to read, all if none is named; `execution` is the submit. With
    `newest_first` the last event is the first of the first page, and a cursor leads to older ones.
    Empty if there is no such execution, unless events of a deleted one are still there. Raises
    `ValidationError(invalid_input)` for another limit, cursor or family.

    The clock does not matter: it may have been set back in between.
    """
    check_limit(limit)
    for family in families:
        if family not in OUTBOXES:
            raise invalid_input("families", str(family), f"must be one of {', '.join(OUTBOXES)}")
    wanted = set(families or OUTBOXES)
    parameters: dict[str, object] = {
        "partition_key": execution_id.partition_key,
        "execution_id": execution_id.uuid,
        "leases": "lease" in wanted,
        "completions": "completion" in wanted,
        "operators": "operator" in wanted,
        "signals": "signal" in wanted,
        "limit": limit + LOOK_AHEAD,
    }
    if newest_first:
        submit = "execution" in wanted
        return await _newest(conn, cursor, limit, {**parameters, "submit": submit})
    place = _Place() if cursor is None else _Place.parse(cursor)
    found = await fetch_all(
        conn,
        READ_HISTORY,
        HistoryRow,
        lease=place.lease,
        completion=place.completion,
        operator=place.operator,
        signal=place.signal,
        submit=cursor is None and "execution" in wanted,
        **parameters,
    )
    # As many of each outbox were read: so many are in their order, whatever follows.
    rows = list(islice(HistoryOrder(found, place.state), limit + LOOK_AHEAD))
    entries = [_entry(row) for row, _ in rows]
    _add_replaced_errors(entries)
    for row, state in rows[:limit]:
        place = place.after(row, state)
    return HistoryPage(
        entries=entries[:limit], next_cursor=str(place) if len(rows) > limit else None
    )


async def _newest(
    conn: Connection, cursor: str | None, limit: int, parameters: dict[str, object]
) -> HistoryPage:
    """The last events before the cursor, the last one first.

    The newest of each outbox are brought in order forwards: what begins the page is decided by
    events that are before it, of which the look ahead has some.
    """
    places = dict.fromkeys(("lease", "completion", "operator", "signal"), _END)
    if cursor is not None:
        found = _NEWEST_CURSOR.fullmatch(cursor)
        numbers = [int(each) for each in found.groups()] if found is not None else [2**63]
        if max(numbers) >= 2**63:
            raise invalid_input("cursor", cursor, "must be the next_cursor of a page of a history")
        places = dict(zip(places, numbers, strict=True))
    read = await fetch_all(conn, READ_NEWEST, HistoryRow, **places, **parameters)
    read.sort(key=lambda row: row.event_id)
    rows = [row for row, _ in HistoryOrder(read, HistoryState.OPEN)]
    entries = [_entry(row) for row in rows]
    _add_replaced_errors(entries)
    for row in rows[-limit:]:
        if row.outbox in places:
            places[row.outbox] = min(places[row.outbox], row.event_id)
    older = "n" + ".".join(str(place) for place in places.values())
    return HistoryPage(
        entries=entries[-limit:][::-1], next_cursor=older if len(rows) > limit else None
    )


def _entry(row: HistoryRow) -> HistoryEntry:
    return HistoryEntry(
        at=instant(row.occurred_at_ms),
        outbox=cast(OutboxName, row.outbox),
        what=_what(row),
        reason=row.reason,
        by=row.by,
        attempt_index=row.attempt_index,
        lease_epoch=row.lease_epoch if row.outbox == "lease" else None,
        details={} if row.details is None else decoded_details(row.details),
    )


def _add_replaced_errors(entries: list[HistoryEntry]) -> None:
    """The attempt that a replay makes anew replaces the one that failed; the event has its error.

    The lease under which that attempt failed is the last one that ended before the replay.
    """
    ended: int | None = None
    for place, entry in enumerate(entries):
        if entry.outbox == "lease":
            ended = place if entry.what in ("released", "revoked", "expired") else None
        elif entry.outbox == "operator" and entry.what == OperatorEventType.REPLAYED:
            error = entry.details.get("old_failure_reason")
            if ended is not None and error and not entries[ended].details:
                entries[ended] = msgspec.structs.replace(entries[ended], details={"error": error})
            ended = None


def _what(row: HistoryRow) -> str:
    return lease_word(row.what, row.reason) if row.outbox == "lease" else row.what
