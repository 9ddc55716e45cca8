"""Sweep: some keys that hold executions back are looked at, in case nobody let them go."""

from __future__ import annotations

import random
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.quotas.unblock_keys import unblock_keys

# The ids of keys are hashes, so a batch from a random id on reaches every key equally. Each step of
# the recursion finds the next key by one look into the index, however many executions a key has.
FIND_HELD_KEYS: Final[LiteralString] = """
-- quotas.unblock_held_keys
WITH RECURSIVE held AS (
    (SELECT quota_key_id, 1 AS n FROM ff.exec_core
      WHERE exceptional_state = 'blocked_by_quota' AND quota_key_id >= %(start)s
      ORDER BY quota_key_id LIMIT 1)
    UNION ALL
    SELECT next.quota_key_id, held.n + 1 FROM held CROSS JOIN LATERAL (
           SELECT e.quota_key_id FROM ff.exec_core e
            WHERE e.exceptional_state = 'blocked_by_quota' AND e.quota_key_id > held.quota_key_id
            ORDER BY e.quota_key_id LIMIT 1) AS next
     WHERE held.n < %(limit)s
)
SELECT quota_key_id FROM held
"""

_LOWEST: Final = -(2**63)


class _Key(msgspec.Struct, frozen=True):
    quota_key_id: int


async def unblock_held_keys(conn: Connection, limit: int) -> int:
    """Up to `limit` keys, from a random one on, are looked at; how many executions were let go."""
    start = random.randint(_LOWEST, -_LOWEST - 1)
    keys = {each.quota_key_id for each in await _held(conn, start, limit)}
    if len(keys) < limit:
        keys |= {each.quota_key_id for each in await _held(conn, _LOWEST, limit - len(keys))}
    return await unblock_keys(conn, keys, wait=False) if keys else 0


async def _held(conn: Connection, start: int, limit: int) -> list[_Key]:
    return await fetch_all(conn, FIND_HELD_KEYS, _Key, start=start, limit=limit)
