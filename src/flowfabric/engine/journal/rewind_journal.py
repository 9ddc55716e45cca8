"""Journals are cut back, so that executions which ended can go on from before their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, LiteralString, TypeAlias, get_args

import msgspec

from flowfabric.db.faults import SerializationConflict
from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.engine.journal.entry import check_entry_name, entry_key
from flowfabric.engine.journal.kept_entries import Mark, kept_entries
from flowfabric.engine.lifecycle.arm_compensations import arm_compensations
from flowfabric.engine.lifecycle.reopen_waitpoints import JournalWaitpoint, reopen_waitpoints
from flowfabric.engine.lifecycle.sql.by_key import execution_row
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.states import JournalKind

ReplayFrom: TypeAlias = Literal["failure", "start"]
"""What a replay keeps: what was done before the failure, or nothing."""

MAX_KEYS: Final = 1000
"""How many dropped keys an operator event lists."""

# A sleep whose time has passed is over, and nothing more is written of it.
SLEPT: Final[LiteralString] = "kind = 'sleep' AND coalesce(due_at_ms <= ff.now_ms(), false)"

READ_BOUNDS: Final[LiteralString] = f"""
-- journal.rewind_journal: those that have a journal
SELECT named.ordinal, e.attempt_index, e.compensates, e.terminal_outcome = 'failed' AS failed,
       j.has_compensations, j.has_waitpoints, j.last_done, j.last_failed, j.first_of_step
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[]) WITH ORDINALITY
       AS named (partition_key, execution_id, ordinal)
  JOIN ff.exec_core e ON {execution_row("named.partition_key", "named.execution_id")}
 CROSS JOIN LATERAL (
       SELECT count(*) AS entries, coalesce(bool_or(kind = 'compensation'), false)
              AS has_compensations,
              coalesce(bool_or(kind = 'waitpoint'), false) AS has_waitpoints,
              max(seq) FILTER (WHERE seq > 0 AND (state = 'done' OR state = 'open' AND {SLEPT}))
                  AS last_done,
              max(seq) FILTER (WHERE state = 'failed') AS last_failed,
              min(seq) FILTER (WHERE name = %(step)s AND seq > 0) AS first_of_step
         FROM ff.journal j
        WHERE (j.partition_key, j.execution_id) = (named.partition_key, named.execution_id)) AS j
 WHERE j.entries > 0 OR %(also_empty)s
"""

REWIND_JOURNAL: Final[LiteralString] = f"""
-- journal.rewind_journal
WITH named AS (       -- each with the first failed entry, and the first of all, that it loses
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[],
                         %(failed_from)s::integer[], %(all_from)s::integer[]) WITH ORDINALITY
        AS named (partition_key, execution_id, failed_from, all_from, ordinal)
)
DELETE FROM ff.journal j USING named
 WHERE j.partition_key = ANY (ARRAY[named.partition_key])
   AND j.execution_id = named.execution_id AND j.seq <> 0
   AND (j.state = 'open' AND %(open_too)s AND NOT ({SLEPT})
        OR j.state = 'failed' AND j.seq >= named.failed_from OR j.seq >= named.all_from)
RETURNING named.ordinal, j.seq, j.kind, j.name, j.item, j.occurrence
"""

WHAT_IS_LEFT: Final[LiteralString] = """
-- journal.rewind_journal: the last entries that are left, and the marks
SELECT named.ordinal, max(j.seq) AS last_seq,
       (array_agg(j.value) FILTER (WHERE j.seq = 0))[1] AS mark
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[]) WITH ORDINALITY
       AS named (partition_key, execution_id, ordinal)
  JOIN ff.journal j ON j.partition_key = ANY (ARRAY[named.partition_key])
   AND j.execution_id = named.execution_id AND j.seq >= 0
 GROUP BY named.ordinal
"""

KEPT_WAITPOINTS: Final[LiteralString] = """
-- journal.rewind_journal: the waitpoints that the journals still have
SELECT named.ordinal, j.seq, j.kind, j.name, j.item, j.occurrence
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[]) WITH ORDINALITY
       AS named (partition_key, execution_id, ordinal)
  JOIN ff.journal j ON j.partition_key = ANY (ARRAY[named.partition_key])
   AND j.execution_id = named.execution_id AND j.kind = 'waitpoint'
"""

MARK: Final[LiteralString] = """
-- journal.rewind_journal: the mark of the journal
INSERT INTO ff.journal (
       partition_key, seq, execution_id, attempt_index, started_at_ms, recorded_at_ms, kind, state,
       name, encoding, value)
SELECT partition_key, 0, execution_id, attempt_index, ff.now_ms(), ff.now_ms(), 'mark', 'done',
       'mark', 'json', value
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[], %(attempt_index)s::integer[],
              %(value)s::bytea[]) AS named (partition_key, execution_id, attempt_index, value)
    ON CONFLICT (partition_key, execution_id, seq) DO UPDATE
   SET attempt_index = EXCLUDED.attempt_index, started_at_ms = EXCLUDED.started_at_ms,
       recorded_at_ms = EXCLUDED.recorded_at_ms, value = EXCLUDED.value
"""

# An entry without a value disarms itself and those before it.
FORGET_MADE: Final[LiteralString] = """
-- journal.rewind_journal: calls that a compensation was started for are not armed any more
UPDATE ff.journal j SET encoding = NULL, value = NULL
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
 WHERE j.partition_key = ANY (ARRAY[named.partition_key])
   AND j.execution_id = named.execution_id AND j.kind = 'compensation' AND j.value IS NOT NULL
"""
_BEFORE_ALL: Final = -(2**31)


class Rewound(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal of one execution has lost."""

    from_: ReplayFrom
    from_step: str | None
    dropped: tuple[str, ...]
    """The keys of the dropped entries, in the order of their places."""
    generation: int | None = None
    """The generation that begins, if one does."""

    def facts(self) -> dict[str, Any]:
        """For the operator event of the replay; a long list is cut."""
        return {
            "from": self.from_,
            "from_step": self.from_step,
            "dropped_entries": len(self.dropped),
            "dropped_keys": list(self.dropped[:MAX_KEYS]),
            "new_generation": self.generation,
        }


class _Bounds(msgspec.Struct, frozen=True):
    ordinal: int
    attempt_index: int
    compensates: bool
    failed: bool
    has_compensations: bool
    has_waitpoints: bool
    last_done: int | None
    last_failed: int | None
    first_of_step: int | None

    @property
    def failed_from(self) -> int | None:
        """The first failed entry that ended the execution, or may have.

        Those after the last one that is done. If there is none, the last one that failed, unless
        the execution ended otherwise: then its handler had got over that failure.
        """
        if self.last_failed is None or self.last_done is None:
            return self.last_failed
        if self.last_failed > self.last_done:
            return self.last_done
        return self.last_failed if self.failed else None


class _Dropped(msgspec.Struct, frozen=True):
    ordinal: int
    seq: int
    kind: str
    name: str
    item: str
    occurrence: int

    @property
    def key(self) -> str:
        return entry_key(self.name, self.item, self.occurrence)


class _Left(msgspec.Struct, frozen=True):
    ordinal: int
    last_seq: int
    mark: bytes | None


def check_replay_from(from_: object, from_step: str | None) -> None:
    """Raise `ValidationError(invalid_input)` for what no replay can begin from."""
    if from_ not in get_args(ReplayFrom):
        raise invalid_input("from_", from_, "must be 'failure' or 'start'")
    if from_step is not None:
        check_entry_name(from_step, field="from_step")
        if from_ != "failure":
            raise invalid_input("from_step", from_step, "or from_, and only one, can be given")


async def find_step(
    conn: Connection, executions: Sequence[ExecutionId], name: str
) -> set[ExecutionId]:
    """Those of the executions whose journal has an entry of this name."""
    rows = await _read_bounds(conn, executions, step=name)
    return {executions[row.ordinal - 1] for row in rows if row.first_of_step is not None}


async def rewind_journal(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    from_: ReplayFrom = "failure",
    from_step: str | None = None,
) -> dict[ExecutionId, Rewound]:
    """Each journal has lost what keeps its execution from going on; what, of those that have one.

    From the failure: entries that are open, but for sleeps whose time has passed, and those that
    failed after the last one that is done; or else, if the execution failed, the last one that
    failed. The mark lists those of them that come before others that are kept. From a step: the
    first entry of that name and all after it. From the start: all entries, and the next generation
    begins. Signals that only dropped entries had consumed can be consumed again. Compensations that
    are still in the journal stay armed, unless they were made. Waitpoints that are still in the
    journal take signals again if the end closed them; those of dropped entries are deleted.

    The caller holds the locks of `lock_executions`, and no worker holds the executions. Raises
    `SerializationConflict` if a journal has no such step; see `find_step`.
    """
    anew = from_ == "start"
    rows = await _read_bounds(conn, executions, step=from_step, also_empty=anew)
    if from_step is not None:
        having = [row for row in rows if row.first_of_step is not None]
        if len(having) < len(executions):
            raise SerializationConflict(f"no step {from_step!r} any more")
    if not rows:
        return {}
    named = [executions[row.ordinal - 1] for row in rows]
    armed = await _forget_made(conn, named, rows)
    dropped: list[list[_Dropped]] = [[] for _ in rows]
    for entry in await fetch_all(
        conn,
        REWIND_JOURNAL,
        _Dropped,
        open_too=from_step is None,
        failed_from=[None if from_step is not None else row.failed_from for row in rows],
        all_from=[_BEFORE_ALL if anew else row.first_of_step for row in rows],
        **id_columns(named),
    ):
        dropped[entry.ordinal - 1].append(entry)
    await _reopen_waitpoints(conn, named, rows, [entry for some in dropped for entry in some])
    generations = await _begin_generations(conn, named, rows) if anew else {}
    if from_step is None and not anew:
        await _mark_gaps(conn, named, rows, dropped)
    await _arm_as_kept(conn, armed)
    return {
        each: Rewound(
            from_=from_,
            from_step=from_step,
            dropped=tuple(entry.key for entry in sorted(entries, key=lambda entry: entry.seq)),
            generation=generations.get(each),
        )
        for each, entries in zip(named, dropped, strict=True)
    }


async def _read_bounds(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    step: str | None = None,
    also_empty: bool = False,
) -> list[_Bounds]:
    return await fetch_all(
        conn, READ_BOUNDS, _Bounds, step=step, also_empty=also_empty, **id_columns(executions)
    )


async def _reopen_waitpoints(
    conn: Connection,
    executions: Sequence[ExecutionId],
    rows: Sequence[_Bounds],
    dropped: Sequence[_Dropped],
) -> None:
    if not any(row.has_waitpoints for row in rows):
        return
    kept = await fetch_all(conn, KEPT_WAITPOINTS, _Dropped, **id_columns(executions))
    await reopen_waitpoints(
        conn,
        [
            JournalWaitpoint(
                execution_id=executions[entry.ordinal - 1], waitpoint_key=entry.key, kept=is_kept
            )
            for entries, is_kept in ((kept, True), (dropped, False))
            for entry in entries
            if entry.kind == JournalKind.WAITPOINT
        ],
    )


async def _mark_gaps(
    conn: Connection,
    executions: Sequence[ExecutionId],
    rows: Sequence[_Bounds],
    dropped: Sequence[Sequence[_Dropped]],
) -> None:
    """The marks list the dropped calls that come before others that are kept."""
    cut = [place for place, entries in enumerate(dropped) if entries]
    if not cut:
        return
    marks: dict[int, Mark] = {}
    for row in await fetch_all(
        conn, WHAT_IS_LEFT, _Left, **id_columns([executions[place] for place in cut])
    ):
        place, mark = cut[row.ordinal - 1], Mark.decode(row.mark)
        gaps = [
            (entry.name, entry.item, entry.occurrence)
            for entry in dropped[place]
            if 0 < entry.seq < row.last_seq
        ]
        if gaps:
            again = tuple(sorted({*mark.again, *gaps}))
            marks[place] = Mark(mark.generation, again)
    if marks:
        await execute(
            conn,
            MARK,
            attempt_index=[rows[place].attempt_index for place in marks],
            value=[mark.encode() for mark in marks.values()],
            **id_columns([executions[place] for place in marks]),
        )


async def _begin_generations(
    conn: Connection, executions: Sequence[ExecutionId], rows: Sequence[_Bounds]
) -> dict[ExecutionId, int]:
    kept = await kept_entries(conn, executions)
    generations = {each: kept[each].generation + 1 for each in executions}
    await execute(
        conn,
        MARK,
        attempt_index=[row.attempt_index for row in rows],
        value=[Mark(generation).encode() for generation in generations.values()],
        **id_columns(executions),
    )
    return generations


async def _forget_made(
    conn: Connection, executions: Sequence[ExecutionId], rows: Sequence[_Bounds]
) -> list[ExecutionId]:
    """The executions that have compensations; those that were made are not armed any more.

    Calls that are armed in the journal, of an execution that does not compensate, were made.
    """
    having = [
        (each, row.compensates)
        for each, row in zip(executions, rows, strict=True)
        if row.has_compensations
    ]
    if not having:
        return []
    kept = await kept_entries(conn, [each for each, _ in having])
    made = [each for each, compensates in having if kept[each].armed and not compensates]
    if made:
        await execute(conn, FORGET_MADE, **id_columns(made))
    return [each for each, _ in having]


async def _arm_as_kept(conn: Connection, executions: Sequence[ExecutionId]) -> None:
    """Each execution compensates if its journal still has something that is armed."""
    if not executions:
        return
    kept = await kept_entries(conn, executions)
    for armed in (True, False):
        those = [each for each in executions if bool(kept[each].armed) is armed]
        if those:
            await arm_compensations(conn, those, armed=armed)
