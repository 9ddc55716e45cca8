"""active → runnable or terminal(failed): the expired lease of an execution is voided."""

from __future__ import annotations

from typing import LiteralString

from flowfabric.engine.lifecycle.sql.end import end
from flowfabric.engine.lifecycle.sql.requeue import requeue


def expire_lease(
    source: LiteralString, *, lease_reason: LiteralString = "NULL::text"
) -> LiteralString:
    """The CTEs that void the expired leases of `source`; `ended` and `requeued` are these rows.

    `source` has the columns of `fence.LOCKED_COLUMNS` and `given_cap`, which replaces the cap of
    the policy unless it is null. An execution whose leases were lost as often as the cap allows
    ends as failed; every other is claimable again. `lease_reason` says in the lease events why a
    lease is voided before its time.
    """
    return (
        f""", expired AS (        -- each with the cap that applies
    SELECT {source}.*,
           {source}.lease_reclaim_count
               >= coalesce({source}.given_cap, ff.reclaim_cap(body.policy)) AS over_cap
      FROM {source} JOIN ff.exec_body body USING (partition_key, execution_id)
)"""
        + end(
            "expired",
            where="over_cap",
            outcome="'failed'",
            failure_reason="'max_reclaims_exceeded'",
            failure_category="'infra_crash'",
            lease_event="'expired'",
            lease_reason=lease_reason,
        )
        + requeue(
            "expired",
            where="NOT over_cap",
            attempt_outcome="'lease_expired_reclaimable'",
            counts_as_lost="true",
            lease_event="'expired'",
            lease_reason=lease_reason,
        )
    )
