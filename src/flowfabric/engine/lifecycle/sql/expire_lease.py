"""active → runnable or terminal(failed): what becomes of a lease that ran out.

`LAPSE` is the part that every such statement shares. It takes a CTE `seen` (the standing columns of
`fence.STANDING` plus `given_cap`, which stands for the policy's cap unless it is null) and gives
`ended` and `left_over`: the execution goes back to the pool, or ends once its leases were lost more
often than the cap allows.
"""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.engine.lifecycle.sql.end import TERMINALIZE
from flowfabric.engine.lifecycle.sql.requeue import RELINQUISH

LAPSE: Final[LiteralString] = (
    """lost AS (             -- each with its policy's patience
    SELECT seen.*, true AS rotates, 'expired' AS lease_event, NULL::text AS lease_reason,
           NULL::text AS failure_detail,
           seen.lease_reclaim_count >= coalesce(seen.given_cap, ff.reclaim_cap(body.policy))
               AS spent
      FROM seen JOIN ff.exec_body body USING (partition_key, execution_id)
), ending AS (
    SELECT lost.*, 'failed' AS outcome, 'max_reclaims_exceeded' AS failure_reason,
           'infra_crash' AS failure_category, NULL::bytea AS result,
           NULL::text AS cancellation_reason, NULL::text AS cancelled_by
      FROM lost WHERE spent
), leaving AS (
    SELECT lost.*, NULL::bigint AS until_ms, 'waiting_for_worker' AS waiting_for,
           'lease_expired_reclaimable' AS attempt_outcome,
           'attempt_interrupted' AS next_attempt_state, false AS retries, true AS loses,
           NULL::text AS failure_reason, NULL::text AS failure_category
      FROM lost WHERE NOT spent
), """
    + TERMINALIZE
    + """, """
    + RELINQUISH
)
