"""What outlives a restart of the handler: its generation, and the compensations that are armed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, id_columns

KEPT_ENTRIES: Final[LiteralString] = """
-- journal.kept_entries
SELECT named.ordinal, j.seq, j.value
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[]) WITH ORDINALITY
       AS named (partition_key, execution_id, ordinal)
 CROSS JOIN LATERAL (
       SELECT * FROM ff.journal j
        WHERE (j.partition_key, j.execution_id) = (named.partition_key, named.execution_id)
          AND (j.kind = 'compensation' OR j.seq = 0)
       OFFSET 0) AS j
"""


class CompensationEntry(msgspec.Struct, frozen=True):
    """A compensation that was armed or, without a value, what disarmed those before it.

    What is kept when the handler restarts has a negative `seq`: -1 what was armed first,
    and so on downwards.
    """

    seq: int
    value: bytes | None

    @property
    def order(self) -> tuple[bool, int]:
        """Ascends in the order in which entries were written."""
        return self.seq > 0, abs(self.seq)


class KeptEntries(msgspec.Struct, frozen=True):
    """The generation of a journal, and its entries of kind compensation as they were written."""

    generation: int = 0
    compensations: tuple[CompensationEntry, ...] = ()

    @property
    def armed(self) -> tuple[CompensationEntry, ...]:
        """Those that run unless the execution succeeds, in the order in which they were armed."""
        values = [each.value for each in self.compensations]
        first = len(values) - values[::-1].index(None) if None in values else 0
        return self.compensations[first:]


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a mark: which generation of the journal this is.

    `again` are the keys of calls that a replay dropped before others that it kept: the handler
    makes them anew, although later ones are recorded.
    """

    generation: int
    again: tuple[tuple[str, str, int], ...] = ()

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, value: bytes | None) -> Mark:
        return cls(0) if value is None else msgspec.json.decode(value, type=cls)


class _Row(msgspec.Struct, frozen=True):
    ordinal: int
    seq: int
    value: bytes | None


async def kept_entries(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, KeptEntries]:
    """The generation and the compensations of each execution."""
    rows = await fetch_all(conn, KEPT_ENTRIES, _Row, **id_columns(executions))
    generations = {row.ordinal: Mark.decode(row.value).generation for row in rows if row.seq == 0}
    found: dict[int, list[CompensationEntry]] = {}
    for row in rows:
        if row.seq != 0:
            found.setdefault(row.ordinal, []).append(CompensationEntry(row.seq, row.value))
    return {
        each: KeptEntries(
            generations.get(number, 0),
            tuple(sorted(found.get(number, ()), key=lambda entry: entry.order)),
        )
        for number, each in enumerate(executions, 1)
    }
