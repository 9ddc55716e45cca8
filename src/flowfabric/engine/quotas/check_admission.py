"""One execution is admitted by a limit, or refused, outside of the claim."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Final, Literal, LiteralString
from uuid import UUID

import msgspec

from flowfabric.counters import QUOTA_HITS
from flowfabric.db.rows import Connection, execute, fetch_maybe, fetch_one
from flowfabric.engine.quotas.quota_policy import policy_id
from flowfabric.engine.quotas.read_quota_policy_limits import read_quota_policy_limits
from flowfabric.ids import ExecutionId, check_type
from flowfabric.instants import check_instant, epoch_ms
from flowfabric.limits import (
    QuotaLimits,
    check_limit_key,
    quota_key_id,
    quota_policy_partition,
)

GRACE_MS: Final = 120_000
"""So long an admitted execution that does not run yet holds its slot."""
DEFAULT_WINDOW_MS: Final = 60_000

# The key of the limit is locked before anything is counted, by a statement of its own: the next one
# sees what the transactions have committed that this one waited for. A key of a limit of another
# namespace is not touched.
LOCK_KEY: Final[LiteralString] = """
-- quotas.check_admission: locks
INSERT INTO ff.quota_key AS q (partition_key, quota_key_id, quota_policy_id, dimension)
SELECT ff.quota_partition(%(quota_key_id)s, %(partitions)s), %(quota_key_id)s,
       %(quota_policy_id)s, %(dimension)s
 WHERE NOT EXISTS (SELECT FROM ff.quota_policy p
                    WHERE (p.partition_key, p.quota_policy_id)
                        = (%(policy_partition)s, %(quota_policy_id)s)
                      AND p.namespace <> %(namespace)s)
    ON CONFLICT (partition_key, quota_key_id) DO UPDATE SET dimension = EXCLUDED.dimension
 RETURNING q.quota_key_id
"""

COUNT_ADMISSION: Final[LiteralString] = """
-- quotas.check_admission
WITH given AS (
    SELECT coalesce(%(now_ms)s::bigint, ff.now_ms()) AS now_ms,
           ff.quota_partition(%(quota_key_id)s, %(partitions)s) AS partition_key
)
SELECT given.now_ms,
       EXISTS (SELECT FROM ff.quota_admitted a
                WHERE (a.partition_key, a.quota_key_id, a.execution_id)
                    = (given.partition_key, %(quota_key_id)s, %(execution_id)s)
                  AND a.expires_at_ms > given.now_ms AND a.released_at_ms IS NULL) AS already,
       (SELECT count(*) FROM ff.quota_window w
         WHERE (w.partition_key, w.quota_key_id) = (given.partition_key, %(quota_key_id)s)
           AND w.admitted_at_ms > given.now_ms - %(window_ms)s::bigint) AS starts,
       (SELECT min(w.admitted_at_ms) FROM ff.quota_window w
         WHERE (w.partition_key, w.quota_key_id) = (given.partition_key, %(quota_key_id)s)
           AND w.admitted_at_ms > given.now_ms - %(window_ms)s::bigint) AS oldest_ms,
       (SELECT count(*) FROM (
            SELECT l.execution_id FROM ff.lease l WHERE l.quota_key_id = %(quota_key_id)s
             UNION
            SELECT a.execution_id FROM ff.quota_admitted a
             WHERE a.quota_key_id = %(quota_key_id)s AND a.released_at_ms IS NULL
               AND (EXISTS (SELECT FROM ff.lease l
                             WHERE (l.partition_key, l.execution_id)
                                 = (a.execution_partition, a.execution_id))
                    OR a.admitted_at_ms > given.now_ms - %(grace_ms)s::bigint
                   AND NOT EXISTS ( -- it has run since, or never will
                           SELECT FROM ff.exec_core e
                            WHERE (e.partition_key, e.execution_id)
                                = (a.execution_partition, a.execution_id)
                              AND (e.lifecycle_phase <> 'runnable'
                                   OR e.lease_epoch <> a.lease_epoch)))) AS held
         WHERE held.execution_id <> %(execution_id)s) AS slots
  FROM given
"""

ADMIT: Final[LiteralString] = """
-- quotas.check_admission: admits
WITH given AS (
    SELECT ff.quota_partition(%(quota_key_id)s, %(partitions)s) AS partition_key
), replaced AS (      -- an execution counts once
    DELETE FROM ff.quota_window w USING ff.quota_admitted a, given
     WHERE (a.partition_key, a.quota_key_id, a.execution_id)
         = (given.partition_key, %(quota_key_id)s, %(execution_id)s)
       AND (w.partition_key, w.quota_key_id, w.admitted_at_ms, w.start_no)
         = (a.partition_key, a.quota_key_id, a.admitted_at_ms, a.start_no)
), begun AS (
    INSERT INTO ff.quota_window (partition_key, quota_key_id, admitted_at_ms)
    SELECT partition_key, %(quota_key_id)s, %(now_ms)s FROM given WHERE %(counts)s::boolean
 RETURNING start_no
)
INSERT INTO ff.quota_admitted (
       partition_key, quota_key_id, quota_policy_id, execution_id, execution_partition,
       admitted_at_ms, start_no, expires_at_ms, lease_epoch)
SELECT partition_key, %(quota_key_id)s, %(quota_policy_id)s, %(execution_id)s,
       %(execution_partition)s, %(now_ms)s, (SELECT start_no FROM begun),
       %(now_ms)s::bigint + %(window_ms)s::bigint,
       (SELECT e.lease_epoch FROM ff.exec_core e
         WHERE (e.partition_key, e.execution_id) = (%(execution_partition)s, %(execution_id)s))
  FROM given
    ON CONFLICT (partition_key, quota_key_id, execution_id) DO UPDATE
   SET admitted_at_ms = EXCLUDED.admitted_at_ms,
       start_no = EXCLUDED.start_no, expires_at_ms = EXCLUDED.expires_at_ms,
       released_at_ms = NULL, lease_epoch = EXCLUDED.lease_epoch
"""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a limit; `admitted` and `already_admitted` allow the start."""

    outcome: Literal["admitted", "already_admitted", "rate_exceeded", "concurrency_exceeded"]
    retry_after: float | None = None
    """In how many seconds a start leaves the window; only with `rate_exceeded`."""

    @property
    def is_admitted(self) -> bool:
        return self.outcome in ("admitted", "already_admitted")


class _Key(msgspec.Struct, frozen=True):
    quota_key_id: int


class _Counted(msgspec.Struct, frozen=True):
    now_ms: int
    already: bool
    starts: int
    oldest_ms: int | None
    slots: int


async def check_admission(
    conn: Connection,
    limit: str | UUID,
    execution_id: ExecutionId,
    *,
    limit_key: str = "",
    limits: QuotaLimits | None = None,
    now: datetime | None = None,
    namespace: str = "default",
    partitions: int = 256,
) -> Admission:
    """Count the execution as started, if the limit allows it; needs a transaction.

    `limits` replaces the stored numbers; a limit that the namespace lacks admits everything.
    The key is locked until the transaction ends, so concurrent calls never admit more than the
    limit allows. A call for an execution that was admitted within the window changes nothing. An
    execution that was released and is admitted again counts once. A slot is held until
    `release_admission`, or until the execution has run or ended, or for two minutes if it does
    neither. Raises `ValidationError(invalid_input)`.
    """
    check_type(execution_id, ExecutionId, field="execution_id")
    key = limit_key if limit_key in ("", "default") else check_limit_key(limit_key)
    key = "" if key == "default" else key
    quota_policy_id = policy_id(limit, namespace)
    if limits is not None:
        check_type(limits, QuotaLimits, field="limits")
    else:
        limits = await read_quota_policy_limits(conn, quota_policy_id, namespace=namespace)
    if limits is None or not (limits.max_requests_per_window or limits.max_concurrent):
        return Admission(outcome="admitted")
    names = {
        "quota_policy_id": quota_policy_id,
        "quota_key_id": quota_key_id(quota_policy_id, key),
        "partitions": partitions,
    }
    window_ms = limits.window_ms or DEFAULT_WINDOW_MS
    locked = await fetch_maybe(
        conn,
        LOCK_KEY,
        _Key,
        dimension=key,
        policy_partition=quota_policy_partition(quota_policy_id),
        namespace=namespace,
        **names,
    )
    if locked is None:
        return Admission(outcome="admitted")
    counted = await fetch_one(
        conn,
        COUNT_ADMISSION,
        _Counted,
        execution_id=execution_id.uuid,
        now_ms=None if now is None else epoch_ms(check_instant(now, field="now")),
        window_ms=window_ms,
        grace_ms=GRACE_MS,
        **names,
    )
    refused = _refusal(counted, limits, window_ms)
    if refused is not None:
        return refused
    await execute(
        conn,
        ADMIT,
        execution_id=execution_id.uuid,
        execution_partition=execution_id.partition_key,
        now_ms=counted.now_ms,
        window_ms=window_ms,
        counts=limits.max_requests_per_window > 0,
        **names,
    )
    return Admission(outcome="admitted")


def _refusal(counted: _Counted, limits: QuotaLimits, window_ms: int) -> Admission | None:
    """The first answer that applies; None if the execution is admitted."""
    if counted.already:
        return Admission(outcome="already_admitted")
    if 0 < limits.max_requests_per_window <= counted.starts:
        QUOTA_HITS.add("rate")
        oldest = counted.now_ms if counted.oldest_ms is None else counted.oldest_ms
        wait_ms = max(0, oldest + window_ms - counted.now_ms) + random.randint(0, limits.jitter_ms)
        return Admission(outcome="rate_exceeded", retry_after=wait_ms / 1000)
    if 0 < limits.max_concurrent <= counted.slots:
        QUOTA_HITS.add("concurrency")
        return Admission(outcome="concurrency_exceeded")
    return None
