"""What the handler of an execution has done: its durable calls, page by page."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.journal.entry import entry_key
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.pages import check_limit
from flowfabric.states import JournalKind, JournalState

LIST_STEPS: Final[LiteralString] = """
-- journal.list_steps
SELECT j.seq, j.kind, j.state, j.name, j.item, j.occurrence, j.attempt_index, j.tries,
       j.started_at_ms, j.recorded_at_ms, j.due_at_ms, octet_length(j.value) AS size, j.encoding,
       CASE WHEN %(values)s THEN j.value END AS value, ff.now_ms() AS now_ms
  FROM ff.exec_core e
  LEFT JOIN LATERAL (
       SELECT * FROM ff.journal j
        WHERE (j.partition_key, j.execution_id) = (e.partition_key, e.execution_id)
          AND j.seq > %(after_seq)s
        ORDER BY j.seq LIMIT %(limit)s) AS j ON true
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""
_BEFORE_ALL: Final = -(2**31)


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One durable call of a handler."""

    seq: int
    """Its place in the journal; negative for what was carried over when the handler restarted."""
    kind: JournalKind
    state: JournalState
    """A sleep is done when its time has passed."""
    name: str
    item: str
    occurrence: int
    attempt_index: int
    """The attempt that recorded it."""
    tries: int
    started_at: datetime
    took: float | None
    """Seconds until it was finished; None while it is open."""
    due_at: datetime | None
    size: int
    """Bytes of the value."""
    encoding: str | None
    value: bytes | None
    """None unless values were asked for."""

    @property
    def key(self) -> str:
        """Name, item and occurrence, as people read them."""
        return entry_key(self.name, self.item, self.occurrence)


class StepPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some durable calls, in the order in which they were first recorded."""

    steps: tuple[RecordedStep, ...]
    next_after_seq: int | None
    """The next page begins after this one; None if there is none."""


class _Row(msgspec.Struct, frozen=True):
    seq: int | None
    kind: str
    state: str
    name: str
    item: str
    occurrence: int
    attempt_index: int
    tries: int
    started_at_ms: int
    recorded_at_ms: int
    due_at_ms: int | None
    size: int | None
    encoding: str | None
    value: bytes | None
    now_ms: int

    @property
    def slept(self) -> bool:
        """Has the time of a sleep passed? Nothing more is written then."""
        due = self.due_at_ms
        return self.kind == JournalKind.SLEEP and due is not None and due <= self.now_ms


async def list_steps(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    after_seq: int | None = None,
    limit: int = 100,
    values: bool = False,
) -> StepPage:
    """At most `limit` (1 to 1,000) durable calls after `after_seq`, with their values if asked for.

    Raises `NotFound`, and `ValidationError` for a limit or number that cannot be.
    """
    check_limit(limit)
    if after_seq is not None and (type(after_seq) is not int or abs(after_seq) >= 2**31):
        raise invalid_input("after_seq", after_seq, "must be the number of an entry")
    rows = await fetch_all(
        conn,
        LIST_STEPS,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        after_seq=_BEFORE_ALL if after_seq is None else after_seq,
        limit=limit + 1,
        values=values,
    )
    if not rows:
        raise NotFound("execution", execution_id)
    steps = [_step(row.seq, row) for row in rows if row.seq is not None]
    page = steps[:limit]
    more = len(steps) > limit
    return StepPage(steps=tuple(page), next_after_seq=page[-1].seq if more else None)


def _step(seq: int, row: _Row) -> RecordedStep:
    state, ended_ms = JournalState(row.state), row.recorded_at_ms
    if state is JournalState.OPEN and row.slept:
        state, ended_ms = JournalState.DONE, row.due_at_ms or ended_ms
    finished = state is not JournalState.OPEN
    return RecordedStep(
        seq=seq,
        kind=JournalKind(row.kind),
        state=state,
        name=row.name,
        item=row.item,
        occurrence=row.occurrence,
        attempt_index=row.attempt_index,
        tries=row.tries,
        started_at=instant(row.started_at_ms),
        took=max(0, ended_ms - row.started_at_ms) / 1000 if finished else None,
        due_at=instant(row.due_at_ms),
        size=row.size or 0,
        encoding=row.encoding,
        value=row.value,
    )
