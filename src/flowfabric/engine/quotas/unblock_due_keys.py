"""Sweep: keys whose time has come, or of which an execution left without a worker's doing."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.engine.quotas.unblock_keys import unblock_keys

FIND_DUE_KEYS: Final[LiteralString] = """
-- quotas.unblock_due_keys
WITH noted AS (       -- deleted: the keys are looked at in this transaction
    DELETE FROM ff.quota_wakeup w
     USING (SELECT partition_key, wakeup_id FROM ff.quota_wakeup
             LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS found
     WHERE (w.partition_key, w.wakeup_id) = (found.partition_key, found.wakeup_id)
 RETURNING w.quota_key_id
), timed AS (
    SELECT quota_key_id FROM ff.quota_key WHERE next_at_ms <= ff.now_ms()
     ORDER BY next_at_ms LIMIT %(limit)s
)
SELECT quota_key_id FROM noted UNION SELECT quota_key_id FROM timed
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
    """At most `limit` keys of each sort are looked at; how many. Needs a transaction."""
    keys = {row.quota_key_id for row in await fetch_all(conn, FIND_DUE_KEYS, _Key, limit=limit)}
    await unblock_keys(conn, keys)
    return len(keys)
