"""The keys of a limit: what runs, what has started, what is held back."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.quotas.quota_policy import policy_id
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.limits import check_limit_key, quota_key_id
from flowfabric.pages import check_limit

COUNTED_AT_MOST: Final = 100_000

COLUMNS: Final[LiteralString] = """
       q.quota_key_id, q.dimension, q.next_at_ms,
       ARRAY(SELECT format('{fp:%%s}:%%s', l.partition_key, l.execution_id) FROM ff.lease l
              WHERE l.quota_key_id = q.quota_key_id ORDER BY l.attempt_started_at_ms LIMIT 100)
           AS holders,
       ARRAY(SELECT l.attempt_started_at_ms FROM ff.lease l
              WHERE l.quota_key_id = q.quota_key_id ORDER BY l.attempt_started_at_ms LIMIT 100)
           AS held_since_ms,
       (SELECT count(*) FROM ff.lease l WHERE l.quota_key_id = q.quota_key_id) AS held_slots,
       (SELECT count(*) FROM ff.quota_window w
         WHERE w.partition_key = q.partition_key AND w.quota_key_id = q.quota_key_id
           AND w.admitted_at_ms > ff.now_ms() - p.window_ms) AS window_count,
       (SELECT count(*) FROM (SELECT FROM ff.ready r WHERE r.quota_key_id = q.quota_key_id
                               LIMIT %(counted_at_most)s) AS counted) AS claimable,
       (SELECT count(*) FROM (SELECT FROM ff.exec_core e
                               WHERE e.quota_key_id = q.quota_key_id
                                 AND e.exceptional_state = 'blocked_by_quota'
                               LIMIT %(counted_at_most)s) AS counted) AS held_back"""
"""What is said of a key `q` of the limit `p`."""

LIST_QUOTA_KEYS: Final[LiteralString] = f"""
-- quotas.list_quota_keys
SELECT {COLUMNS}
  FROM ff.quota_key q LEFT JOIN ff.quota_policy p ON p.quota_policy_id = q.quota_policy_id
 WHERE q.quota_policy_id = %(quota_policy_id)s
   AND coalesce(p.namespace, %(namespace)s) = %(namespace)s
   AND q.quota_key_id > coalesce(%(after)s::bigint, -9223372036854775808)
   AND (%(key)s::bigint IS NULL OR q.quota_key_id = %(key)s::bigint)
 ORDER BY q.quota_key_id LIMIT %(limit)s
"""


class QuotaKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a limit, as it is now."""

    quota_key_id: int
    limit_key: str
    holders: list[ExecutionId]
    """The executions that run, the longest first; at most 100."""
    held_since: list[datetime]
    """When the attempt of each of them began."""
    held_slots: int
    """How many run."""
    window_count: int
    """How many have started in the window that ends now."""
    claimable: int
    """How many wait for a worker; counted up to 100,000."""
    held_back: int
    """How many the limit holds back; counted up to 100,000."""
    next_at: datetime | None
    """When the rate lets the next one start, if it is used up."""


class KeyRow(msgspec.Struct, frozen=True):
    """A row of `COLUMNS`."""

    quota_key_id: int
    dimension: str
    next_at_ms: int | None
    holders: list[str]
    held_since_ms: list[int]
    held_slots: int
    window_count: int
    claimable: int
    held_back: int

    def key(self) -> QuotaKey:
        return QuotaKey(
            quota_key_id=self.quota_key_id,
            limit_key=self.dimension,
            holders=[ExecutionId.parse(each) for each in self.holders],
            held_since=[instant(each) for each in self.held_since_ms],
            held_slots=self.held_slots,
            window_count=self.window_count,
            claimable=self.claimable,
            held_back=self.held_back,
            next_at=instant(self.next_at_ms),
        )


async def list_quota_keys(
    conn: Connection,
    limit: str | UUID,
    *,
    namespace: str = "default",
    limit_key: str | None = None,
    after: int | None = None,
    count: int = 100,
) -> list[QuotaKey]:
    """The keys of the limit that are in use, or only `limit_key`.

    A page has at most `count`; the next one begins `after` the `quota_key_id` of its last key. A
    key is listed once a claim has seen it, and until nothing of it is left.
    """
    check_limit(count, at_most=1000)
    quota_policy_id = policy_id(limit, namespace)
    key = None
    if limit_key is not None:
        key = quota_key_id(quota_policy_id, limit_key and check_limit_key(limit_key))
    rows = await fetch_all(
        conn,
        LIST_QUOTA_KEYS,
        KeyRow,
        quota_policy_id=quota_policy_id,
        namespace=namespace,
        after=after,
        key=key,
        limit=count,
        counted_at_most=COUNTED_AT_MOST,
    )
    return [row.key() for row in rows]
