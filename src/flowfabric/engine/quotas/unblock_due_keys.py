"""Sweep: keys whose time has come, or of which an execution left without a worker's doing."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all, fetch_maybe, fetch_one
from flowfabric.engine.quotas.unblock_keys import UnblockedKeys, unblock_keys

# A key that another transaction has locked is left for the next look, with its rows here. Rows are
# read and deleted by the primary key: those that are gone and not vacuumed yet cost nothing then.
LOCK_DUE_KEYS: Final[LiteralString] = """
-- quotas.unblock_due_keys: locks
SELECT quota_key_id FROM ff.lock_quota_keys(ARRAY(
    SELECT quota_key_id FROM (SELECT quota_key_id FROM ff.quota_wakeup
                               ORDER BY partition_key, wakeup_id LIMIT %(limit)s) AS noted
     UNION
    SELECT quota_key_id FROM (SELECT quota_key_id FROM ff.quota_key WHERE next_at_ms <= ff.now_ms()
                               ORDER BY next_at_ms LIMIT %(limit)s) AS timed), false)
"""

NOTE_DUE_KEYS: Final[LiteralString] = """
-- quotas.unblock_due_keys: keys without a row
SELECT ff.note_quota_keys(ARRAY(
    SELECT quota_key_id FROM ff.quota_wakeup
     ORDER BY partition_key, wakeup_id LIMIT %(limit)s))::text
"""

# What is deleted here was committed together with what made room, and is counted after this.
UNBLOCK_DUE_KEYS: Final[LiteralString] = """
-- quotas.unblock_due_keys
WITH noted AS (
    DELETE FROM ff.quota_wakeup w
     USING (SELECT partition_key, wakeup_id, quota_key_id FROM ff.quota_wakeup
             ORDER BY partition_key, wakeup_id LIMIT %(limit)s) AS first
     WHERE (w.partition_key, w.wakeup_id) = (first.partition_key, first.wakeup_id)
       AND first.quota_key_id = ANY (%(quota_key_id)s::bigint[])
 RETURNING w.quota_key_id
)
SELECT count(*) AS moved FROM noted
"""

KEYS_DUE: Final[LiteralString] = """
-- quotas.keys_due
SELECT due FROM ((SELECT true AS due FROM ff.quota_wakeup ORDER BY partition_key, wakeup_id LIMIT 1)
                  UNION ALL
                 (SELECT true FROM ff.quota_key WHERE next_at_ms <= ff.now_ms()
                   ORDER BY next_at_ms LIMIT 1)) AS found
 LIMIT 1
"""


class _Key(msgspec.Struct, frozen=True):
    quota_key_id: int


class _Due(msgspec.Struct, frozen=True):
    due: bool


async def keys_due(conn: Connection) -> bool:
    """Is there a key whose executions may be let go?"""
    return await fetch_maybe(conn, KEYS_DUE, _Due) is not None


async def unblock_due_keys(conn: Connection, limit: int) -> int:
    """At most `limit` keys of each sort are looked at; how many moved. Needs a transaction."""
    await execute(conn, NOTE_DUE_KEYS, limit=limit)
    keys = [row.quota_key_id for row in await fetch_all(conn, LOCK_DUE_KEYS, _Key, limit=limit)]
    if not keys:
        return 0
    noted = await fetch_one(conn, UNBLOCK_DUE_KEYS, UnblockedKeys, quota_key_id=keys, limit=limit)
    return noted.moved + await unblock_keys(conn, keys)
