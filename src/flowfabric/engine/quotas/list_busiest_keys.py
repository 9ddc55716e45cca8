"""The busiest keys of a limit, however many keys it has."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.quotas.list_quota_keys import COLUMNS, COUNTED_AT_MOST, KeyRow, QuotaKey
from flowfabric.engine.quotas.quota_policy import policy_id
from flowfabric.pages import check_limit

# A key holds something back only while its slots are in use or its starts are used up. So the keys
# with leases and those with an instant are looked at, and not all of them.
LIST_BUSIEST_KEYS: Final[LiteralString] = f"""
-- quotas.list_busiest_keys
WITH used AS (        -- there are few leases: one for each handler that runs
    SELECT l.quota_key_id FROM ff.lease l JOIN ff.quota_key q USING (quota_key_id)
     WHERE q.quota_policy_id = %(quota_policy_id)s
     GROUP BY l.quota_key_id ORDER BY count(*) DESC LIMIT %(looked_at)s
), used_up AS (
    SELECT q.quota_key_id FROM ff.quota_key q
     WHERE q.quota_policy_id = %(quota_policy_id)s AND q.next_at_ms IS NOT NULL
     ORDER BY q.next_at_ms DESC LIMIT %(looked_at)s
), others AS (        -- of a limit that is hardly used
    SELECT q.quota_key_id FROM ff.quota_key q
     WHERE q.quota_policy_id = %(quota_policy_id)s ORDER BY q.quota_key_id LIMIT %(limit)s
), looked_at AS (
    SELECT quota_key_id FROM used UNION SELECT quota_key_id FROM used_up
    UNION SELECT quota_key_id FROM others
)
SELECT {COLUMNS}
  FROM looked_at JOIN ff.quota_key q USING (quota_key_id)
  LEFT JOIN ff.quota_policy p ON p.quota_policy_id = q.quota_policy_id
 WHERE coalesce(p.namespace, %(namespace)s) = %(namespace)s
 ORDER BY held_back DESC, held_slots DESC, q.dimension LIMIT %(limit)s
"""
_LOOKED_AT: Final = 200


async def list_busiest_keys(
    conn: Connection, limit: str | UUID, *, namespace: str = "default", count: int = 100
) -> list[QuotaKey]:
    """At most `count` keys of the limit: those first that hold back most, then that run most.

    Of each cause, running and used up, 200 keys are compared. Raises
    `ValidationError(invalid_input)` for a count that cannot be.
    """
    check_limit(count, at_most=1000)
    rows = await fetch_all(
        conn,
        LIST_BUSIEST_KEYS,
        KeyRow,
        quota_policy_id=policy_id(limit, namespace),
        namespace=namespace,
        limit=count,
        looked_at=_LOOKED_AT,
        counted_at_most=COUNTED_AT_MOST,
    )
    return [row.key() for row in rows]
