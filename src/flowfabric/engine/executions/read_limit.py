"""The limit that holds an execution back: what it allows, which executions use it up."""

from __future__ import annotations

import shlex
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.executions.explanation import ExplanationReason, ReasonCode
from flowfabric.engine.executions.words import at
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant

BEFORE_AT_MOST: Final = 1000
"""Executions of the key that come first are counted up to this number."""

READ_LIMIT: Final[LiteralString] = """
-- executions.read_limit
SELECT coalesce(p.name, p.quota_policy_id::text) AS name, coalesce(b.quota_dimension, '') AS key,
       p.window_ms, p.max_requests_per_window AS rate, p.active_concurrency_cap AS cap,
       (SELECT count(*) FROM ff.lease l WHERE l.quota_key_id = e.quota_key_id) AS slots,
       (SELECT count(*) FROM ff.quota_window w
         WHERE w.partition_key = q.partition_key AND w.quota_key_id = q.quota_key_id
           AND w.admitted_at_ms > ff.now_ms() - p.window_ms) AS starts,
       (SELECT min(w.admitted_at_ms) + p.window_ms FROM ff.quota_window w
         WHERE w.partition_key = q.partition_key AND w.quota_key_id = q.quota_key_id
           AND w.admitted_at_ms > ff.now_ms() - p.window_ms) AS starts_again_at_ms,
       ARRAY(SELECT format('{fp:%%s}:%%s', l.partition_key, l.execution_id) FROM ff.lease l
              WHERE l.quota_key_id = e.quota_key_id
              ORDER BY l.attempt_started_at_ms LIMIT 3) AS holders,
       (SELECT min(l.attempt_started_at_ms) FROM ff.lease l
         WHERE l.quota_key_id = e.quota_key_id) AS holds_since_ms,
       (SELECT count(*) FROM (
            SELECT FROM ff.exec_core o
             WHERE o.quota_key_id = e.quota_key_id AND o.exceptional_state = 'blocked_by_quota'
               AND (-o.priority, o.created_at_ms, o.execution_id)
                 < (-e.priority, e.created_at_ms, e.execution_id)
             LIMIT %(before_at_most)s) AS counted)
       + (SELECT count(*) FROM (
            SELECT FROM ff.ready r
             WHERE r.quota_key_id = e.quota_key_id
               AND (-r.priority, r.created_at_ms, r.execution_id)
                 < (-e.priority, e.created_at_ms, e.execution_id)
             LIMIT %(before_at_most)s) AS counted) AS before
  FROM ff.exec_core e
  JOIN ff.exec_body b USING (partition_key, execution_id)
  JOIN ff.quota_policy p ON p.quota_policy_id = b.quota_policy_id
  LEFT JOIN ff.quota_key q ON q.quota_key_id = e.quota_key_id
       AND q.quota_policy_id = p.quota_policy_id
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class LimitStatus(msgspec.Struct, frozen=True):
    """The answer row of `read_limit`."""

    name: str
    key: str
    window_ms: int
    rate: int
    cap: int
    slots: int
    starts: int
    starts_again_at_ms: int | None
    holders: list[str]
    holds_since_ms: int | None
    before: int

    @property
    def is_used_up(self) -> bool:
        """Is there no room for another one?"""
        return 0 < self.cap <= self.slots or 0 < self.rate <= self.starts


async def read_limit(conn: Connection, execution_id: ExecutionId) -> LimitStatus | None:
    """The limit of the execution; None if it has none, or the limit is gone."""
    return await fetch_maybe(
        conn,
        READ_LIMIT,
        LimitStatus,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        before_at_most=BEFORE_AT_MOST,
    )


def limit_reason(status: LimitStatus) -> ExplanationReason:
    """Which limit holds the execution back, what uses it up, and how many come first."""
    named = f"limit {status.name!r}" + (f", key {status.key!r}" if status.key else "")
    before = come_before(status.before)
    if 0 < status.cap <= status.slots:
        runs = "runs" if status.slots == 1 else "run"
        holders = ", ".join(status.holders) + (", …" if status.slots > len(status.holders) else "")
        return ExplanationReason(
            why=ReasonCode.BLOCKED,
            message=f"{named}: {status.slots} of {status.cap} {runs} "
            f"({holders} since {at(status.holds_since_ms)}), {before}",
            remedy="it goes on when one of them ends, or with a higher limit: "
            + _setting(status, cap="N"),
        )
    if 0 < status.rate <= status.starts:
        return ExplanationReason(
            why=ReasonCode.BLOCKED,
            message=f"{named}: {status.rate} starts per {status.window_ms / 1000:g} s used, "
            f"next at {at(status.starts_again_at_ms)}, {before}",
            remedy="it goes on then, or with a higher limit: " + _setting(status, rate="N"),
            clears_at=instant(status.starts_again_at_ms),
        )
    return ExplanationReason(
        why=ReasonCode.BLOCKED,
        message=f"{named}: there is room again, {before}",
        remedy="a running worker lets it go within five seconds: is one running? ff workers",
    )


def come_before(count: int) -> str:
    """How many executions come first, counted up to `BEFORE_AT_MOST`, in words."""
    many = f"{BEFORE_AT_MOST} or more" if count >= BEFORE_AT_MOST else str(count)
    return f"{many} {'is' if count == 1 else 'are'} before it"


def _setting(status: LimitStatus, *, cap: str = "", rate: str = "") -> str:
    """The command that sets the limit; what it left out would not be limited any more."""
    parts = ["ff limits set", shlex.quote(status.name)]
    if status.cap:
        parts.append(f"--concurrency {cap or status.cap}")
    if status.rate:
        parts.append(f"--rate {rate or status.rate}/{status.window_ms / 1000:g}s")
    return " ".join(parts)
