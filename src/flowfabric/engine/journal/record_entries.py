"""Entries are recorded in the journals of executions, by the holders of their leases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.journal.entry import EntryWrite, stored_fingerprint
from flowfabric.engine.lifecycle.lease import Lease, fence_columns
from flowfabric.engine.lifecycle.sql.entries import recorded
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

REFUSED: Final[LiteralString] = """
SELECT ordinal FROM held WHERE ordinal NOT IN (SELECT ordinal FROM locked)
"""
"""Answers the ordinals of the leases that are not held."""

RECORD_ENTRIES: Final[LiteralString] = (
    """
-- journal.record_entries
"""
    + held_leases()
    + LOCKED
    + recorded("locked")
    + REFUSED
)

RECORD_IN_SNAPSHOT: Final[LiteralString] = (
    """
-- journal.record_entries: in a transaction that sees one snapshot
"""
    + held_leases()
    + LOCKED_BY_EXECUTION
    + recorded("locked")
    + REFUSED
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
    entries = numbered_columns(numbers, writes)
    leases = list(numbers)
    refused = await fetch_all(
        conn,
        RECORD_IN_SNAPSHOT if in_snapshot else RECORD_ENTRIES,
        AppliedCall,
        **entries,
        **fence_columns(leases),
    )
    if not refused:
        return {}
    gone = [leases[row.ordinal - 1] for row in refused]
    seen = await read_seen(conn, gone)
    return {lease: refusal(lease, row) for lease, row in zip(gone, seen, strict=True)}


def numbered_columns(numbers: dict[Lease, int], writes: Sequence[EntryWrite]) -> dict[str, Any]:
    """The entries as array parameters, each with the number of its lease (`caller`).

    Leases that have no number yet get the next ones. Of several entries at one place the first that
    is finished counts, or the last.
    """
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
    return {"caller": [caller for caller, _ in latest]} | entry_columns(list(latest.values()))


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
