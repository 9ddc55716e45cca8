"""Sweep: starts, admissions and keys that count no more are deleted."""

from __future__ import annotations

import random
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.quotas.check_admission import GRACE_MS

# A start is kept for a minute beyond its window: a claim that waited for the lock of the key counts
# by a clock from before. What is older than the longest window goes at once. Starts of a shorter
# window are among many that still count, so they are found by their keys: a batch of keys from a
# random one on, which reaches every key equally.
TRIM_QUOTAS: Final[LiteralString] = """
-- quotas.trim_quotas
WITH looked_at AS MATERIALIZED (
    SELECT partition_key, quota_key_id, quota_policy_id
      FROM ((SELECT partition_key, quota_key_id, quota_policy_id FROM ff.quota_key
              WHERE (partition_key, quota_key_id) >= (%(partition)s::smallint, %(key)s::bigint)
              ORDER BY partition_key, quota_key_id LIMIT %(limit)s)
             UNION ALL
            (SELECT partition_key, quota_key_id, quota_policy_id FROM ff.quota_key
              WHERE (partition_key, quota_key_id) < (%(partition)s::smallint, %(key)s::bigint)
              ORDER BY partition_key, quota_key_id LIMIT %(limit)s)) AS all_keys
     LIMIT %(limit)s
), longest AS (
    SELECT coalesce((SELECT p.window_ms FROM ff.quota_policy p
                      ORDER BY p.window_ms DESC LIMIT 1), 0) AS window_ms
), starts AS (
    DELETE FROM ff.quota_window w
     USING (SELECT place
              FROM ((SELECT w.ctid AS place FROM ff.quota_window w
                      WHERE w.admitted_at_ms <= ff.now_ms() - 60000
                                                - (SELECT window_ms FROM longest)
                      ORDER BY w.admitted_at_ms LIMIT %(limit)s)
                     UNION
                    (SELECT old.place FROM looked_at AS k
                       LEFT JOIN ff.quota_policy p ON p.quota_policy_id = k.quota_policy_id
                      CROSS JOIN LATERAL (
                            SELECT w.ctid AS place FROM ff.quota_window w
                             WHERE (w.partition_key, w.quota_key_id)
                                 = (k.partition_key, k.quota_key_id)
                               AND w.admitted_at_ms <= ff.now_ms() - 60000
                                                       - coalesce(p.window_ms, 0)
                             ORDER BY w.admitted_at_ms LIMIT %(limit)s) AS old
                      LIMIT %(limit)s)) AS of_both) AS old
     WHERE w.ctid = old.place
 RETURNING w.quota_key_id
), admissions AS (    -- a slot is held while the execution runs
    DELETE FROM ff.quota_admitted a
     USING (SELECT a.ctid AS place FROM ff.quota_admitted a
             WHERE a.expires_at_ms <= ff.now_ms()
               AND (a.released_at_ms IS NOT NULL
                    OR a.admitted_at_ms <= ff.now_ms() - %(grace_ms)s::bigint
                   AND NOT EXISTS (SELECT FROM ff.lease l
                                    WHERE (l.partition_key, l.execution_id)
                                        = (a.execution_partition, a.execution_id)))
             ORDER BY a.expires_at_ms LIMIT %(limit)s) AS old
     WHERE a.ctid = old.place
 RETURNING a.quota_key_id
), idle AS (          -- nothing runs, waits, is held back, or has started in the window
    SELECT q.ctid AS place
      FROM looked_at JOIN ff.quota_key q USING (partition_key, quota_key_id)
     WHERE q.next_at_ms IS NULL
       AND NOT EXISTS (SELECT FROM ff.lease l WHERE l.quota_key_id = q.quota_key_id OFFSET 0)
       AND NOT EXISTS (SELECT FROM ff.ready r WHERE r.quota_key_id = q.quota_key_id OFFSET 0)
       AND NOT EXISTS (SELECT FROM ff.exec_core e
                        WHERE e.quota_key_id = q.quota_key_id
                          AND e.exceptional_state = 'blocked_by_quota' OFFSET 0)
       AND NOT EXISTS (SELECT FROM ff.quota_window w
                        WHERE (w.partition_key, w.quota_key_id) = (q.partition_key, q.quota_key_id)
                       OFFSET 0)
       AND NOT EXISTS (SELECT FROM ff.quota_admitted a
                        WHERE a.quota_key_id = q.quota_key_id OFFSET 0)
       FOR UPDATE OF q SKIP LOCKED
), keys AS (
    DELETE FROM ff.quota_key q USING idle WHERE q.ctid = idle.place RETURNING q.quota_key_id
)
SELECT (SELECT count(*) FROM starts) + (SELECT count(*) FROM admissions)
       + (SELECT count(*) FROM keys) AS moved
"""


class _Trimmed(msgspec.Struct, frozen=True):
    moved: int


async def trim_quotas(conn: Connection, limit: int) -> int:
    """At most `limit` rows of each sort are deleted; how many in all.

    A key without a row gets one again with its next claim.
    """
    answer = await fetch_one(
        conn,
        TRIM_QUOTAS,
        _Trimmed,
        limit=limit,
        grace_ms=GRACE_MS,
        partition=random.randrange(256),
        key=random.randint(-(2**63), 2**63 - 1),
    )
    return answer.moved
