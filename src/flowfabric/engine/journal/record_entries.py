"""Entries are recorded in the journals of executions, by the holders of their leases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.journal.entry import EntryWrite, stored_fingerprint
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.fence import (
    LOCKED,
    LOCKED_BY_EXECUTION,
    AppliedCall,
    held_leases,
    read_seen,
    refusal,
)
from flowfabric.errors import Refusal
from flowfabric.instants import epoch_ms
from flowfabric.states import JournalState

# An entry names its lease by number, and finds the columns of the lease in the arrays: a join would
# compare each entry with every lease. unnest is in the select list, where its rows are not copied
# into a temporary store.
RECORDED: Final[
    LiteralString
] = """, recorded AS (       -- an entry that is finished stays as it is
    INSERT INTO ff.journal AS j (
           partition_key, seq, execution_id, attempt_index, occurrence, started_at_ms,
           recorded_at_ms, due_at_ms, fingerprint, signal_seq, tries, kind, state, name, item,
           encoding, value)
    SELECT (%(partition_key)s::smallint[])[caller], seq, (%(execution_id)s::uuid[])[caller],
           (%(attempt_index)s::integer[])[caller], coalesce(occurrence, 0), started_at_ms,
           ff.now_ms(), due_at_ms, fingerprint, signal_seq, coalesce(tries, 1), kind, state, name,
           coalesce(item, ''), encoding, value
      FROM (SELECT unnest(%(caller)s::integer[]) AS caller, unnest(%(seq)s::integer[]) AS seq,
                   unnest(%(occurrence)s::integer[]) AS occurrence,
                   unnest(%(started_at_ms)s::bigint[]) AS started_at_ms,
                   unnest(%(due_at_ms)s::bigint[]) AS due_at_ms,
                   unnest(%(fingerprint)s::integer[]) AS fingerprint,
                   unnest(%(signal_seq)s::integer[]) AS signal_seq,
                   unnest(%(tries)s::smallint[]) AS tries, unnest(%(kind)s::text[]) AS kind,
                   unnest(%(state)s::text[]) AS state, unnest(%(name)s::text[]) AS name,
                   unnest(%(item)s::text[]) AS item, unnest(%(encoding)s::text[]) AS encoding,
                   unnest(%(value)s::bytea[]) AS value) AS entry
     WHERE (SELECT count(*) FROM locked) = cardinality(%(lease_id)s::uuid[])
        OR caller IN (SELECT ordinal FROM locked)
     ORDER BY (%(partition_key)s::smallint[])[caller], (%(execution_id)s::uuid[])[caller], seq
        ON CONFLICT (partition_key, execution_id, seq) DO UPDATE
       SET attempt_index = EXCLUDED.attempt_index, recorded_at_ms = EXCLUDED.recorded_at_ms,
           due_at_ms = EXCLUDED.due_at_ms, signal_seq = EXCLUDED.signal_seq,
           tries = EXCLUDED.tries, state = EXCLUDED.state, encoding = EXCLUDED.encoding,
           value = EXCLUDED.value
     WHERE j.state = 'open'
)
SELECT ordinal FROM held WHERE ordinal NOT IN (SELECT ordinal FROM locked)
"""
"""Follows a CTE `locked`; answers the ordinals of the leases that are not held."""

RECORD_ENTRIES: Final[LiteralString] = (
    """
-- journal.record_entries
"""
    + held_leases()
    + LOCKED
    + RECORDED
)

RECORD_IN_SNAPSHOT: Final[LiteralString] = (
    """
-- journal.record_entries: in a transaction that sees one snapshot
"""
    + held_leases()
    + LOCKED_BY_EXECUTION
    + RECORDED
)


async def record_entries(
    conn: Connection, writes: Sequence[EntryWrite], *, in_snapshot: bool = False
) -> dict[Lease, Refusal]:
    """Every entry whose lease is held is in the journal; the refused leases, each with its reason.

    Nothing is written under a refused lease. An entry that is open is replaced, but for its key,
    its kind, its fingerprint and the instant when it began; one that is done or failed stays as it
    is, so that the call can be repeated. No lease ends while the transaction is open: the next
    worker that holds the execution reads what was recorded.

    `in_snapshot` is for transactions of REPEATABLE READ or SERIALIZABLE: a renewal since their
    first statement does not make them fail.
    """
    if not writes:
        return {}
    numbers: dict[Lease, int] = {}
    latest: dict[tuple[int, int], EntryWrite] = {}
    lease, number = None, 0
    for write in writes:
        if write.lease is not lease:  # entries of one lease follow each other
            lease = write.lease
            number = numbers.setdefault(lease, len(numbers) + 1)
        place = (number, write.seq)
        before = latest.get(place)
        if before is None or before.state is JournalState.OPEN:
            latest[place] = write
    leases = list(numbers)
    refused = await fetch_all(
        conn,
        RECORD_IN_SNAPSHOT if in_snapshot else RECORD_ENTRIES,
        AppliedCall,
        caller=[caller for caller, _ in latest],
        **entry_columns(list(latest.values())),
        **fence_columns(leases),
    )
    if not refused:
        return {}
    gone = [leases[row.ordinal - 1] for row in refused]
    seen = await read_seen(conn, gone)
    return {lease: refusal(lease, row) for lease, row in zip(gone, seen, strict=True)}


def entry_columns(writes: Sequence[EntryWrite]) -> dict[str, Any]:
    """The entries as array parameters; a column that has its default everywhere is None."""
    occurrences = [write.occurrence for write in writes]
    tries = [write.tries for write in writes]
    items = [write.item for write in writes]
    return {
        "seq": [write.seq for write in writes],
        "occurrence": occurrences if any(occurrences) else None,
        "started_at_ms": [_began_ms(write.started_at) for write in writes],
        "due_at_ms": _column(
            [None if write.due_at is None else epoch_ms(write.due_at) for write in writes]
        ),
        "fingerprint": _column([stored_fingerprint(write.fingerprint) for write in writes]),
        "signal_seq": _column([write.signal_seq for write in writes]),
        "tries": None if tries.count(1) == len(tries) else tries,
        "kind": [write.kind for write in writes],
        "state": [write.state for write in writes],
        "name": [write.name for write in writes],
        "item": items if any(items) else None,
        "encoding": _column([write.encoding for write in writes]),
        "value": _column([write.value for write in writes]),
    }


_began_ms = lru_cache(maxsize=64)(epoch_ms)
"""Many entries of a call began in the same millisecond."""


def _column(values: list[Any]) -> list[Any] | None:
    return None if values.count(None) == len(values) else values
