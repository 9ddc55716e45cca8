"""Entries of journals, recorded by the statement that has looked at their leases."""

from __future__ import annotations

from typing import LiteralString


# An entry names its lease by number, and finds the columns of the lease in the arrays: a join would
# compare each entry with every lease. unnest is in the select list, where its rows are not copied
# into a temporary store.
def recorded(leases: LiteralString) -> LiteralString:
    """The CTE that records the entries of those leases whose ordinals the CTE `leases` has."""
    return f""", recorded AS (       -- an entry that is finished stays as it is
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
     WHERE (SELECT count(*) FROM {leases}) = cardinality(%(lease_id)s::uuid[])
        OR caller IN (SELECT ordinal FROM {leases})
     ORDER BY (%(partition_key)s::smallint[])[caller], (%(execution_id)s::uuid[])[caller], seq
        ON CONFLICT (partition_key, execution_id, seq) DO UPDATE
       SET attempt_index = EXCLUDED.attempt_index, recorded_at_ms = EXCLUDED.recorded_at_ms,
           due_at_ms = EXCLUDED.due_at_ms, signal_seq = EXCLUDED.signal_seq,
           tries = EXCLUDED.tries, state = EXCLUDED.state, encoding = EXCLUDED.encoding,
           value = EXCLUDED.value
     WHERE j.state = 'open'
)"""
