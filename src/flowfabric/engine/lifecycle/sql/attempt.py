"""The ledger of attempts: the row of an attempt that stops running, written once or replaced."""

from __future__ import annotations

from typing import LiteralString


def save_attempt(
    name: LiteralString,
    source: LiteralString,
    *,
    outcome: LiteralString,
    where: LiteralString = "true",
    with_result: bool = False,
    at: LiteralString = "ff.now_ms()",
) -> LiteralString:
    """The attempt of each row of `source` is in the ledger, as it stopped `at` now; two CTEs.

    An attempt that was interrupted before, or is replayed, has a row already (`attempt_recorded`),
    which is replaced. Without `with_result` a result in that row stays. Every other row is a plain
    INSERT, which costs less than one that may conflict.
    """
    also: LiteralString = ", result, result_encoding" if with_result else ""
    also_set: LiteralString = (
        ", result = EXCLUDED.result, result_encoding = EXCLUDED.result_encoding"
        if with_result
        else ""
    )
    stopped: LiteralString = f"""
    INSERT INTO ff.attempt AS a (
           partition_key, execution_id, attempt_index, lease_id, lease_epoch, started_at_ms,
           ended_at_ms, attempt_type, outcome, worker_id, worker_instance_id, failure_reason,
           failure_category, failure_detail{also})
    SELECT partition_key, execution_id, attempt_index, lease_id, lease_epoch,
           attempt_started_at_ms, {at}, attempt_type, {outcome}, worker_id,
           worker_instance_id, failure_reason, failure_category, failure_detail{also}
      FROM {source} WHERE {where}"""
    return f""", {name} AS (   -- the attempt, as it stopped{stopped} AND NOT attempt_recorded
), {name}_again AS (       -- one that stopped before{stopped} AND attempt_recorded
        ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE
       SET lease_id = EXCLUDED.lease_id, lease_epoch = EXCLUDED.lease_epoch,
           started_at_ms = EXCLUDED.started_at_ms, attempt_type = EXCLUDED.attempt_type,
           ended_at_ms = EXCLUDED.ended_at_ms, outcome = EXCLUDED.outcome,
           worker_id = EXCLUDED.worker_id, worker_instance_id = EXCLUDED.worker_instance_id,
           failure_reason = EXCLUDED.failure_reason, failure_category = EXCLUDED.failure_category,
           failure_detail = EXCLUDED.failure_detail{also_set}
)"""
