"""A worker counts what its execution has used of a budget."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.budgets import check_amount, check_amounts, check_dedup_key
from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.budgets.usage import UsageAnswer, UsageOutcome
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandle
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import check_type

log: Final = logging.getLogger("flowfabric.engine")

REPORT_USAGE: Final[LiteralString] = """
-- budgets.report_usage
SELECT answer.outcome, answer.dimension, answer.current_usage, answer.limit_value, found.held
  FROM (SELECT ff.now_ms() AS now_ms, coalesce(
                   e.leased AND (e.lease_epoch, e.lease_id) = (%(lease_epoch)s, %(lease_id)s),
                   false) AS held
          FROM ff.execution e
         WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
        OFFSET 0) AS found
 CROSS JOIN LATERAL ff.report_usage(   -- only if the execution is found
       ARRAY[%(budget_id)s]::uuid[], ARRAY[%(deltas)s]::jsonb[], ARRAY[%(dedup_key)s]::text[],
       NULL, NULL, found.now_ms) AS answer
"""


class _Reported(UsageAnswer, frozen=True):
    held: bool


async def report_usage(
    conn: Connection,
    handle: LeaseHandle | Lease | bytes,
    budget_id: UUID | str,
    dimensions: Mapping[str, int],
    *,
    dedup_key: str | None = None,
    input_tokens: int = 0,
    output_tokens: int = 0,
    wall_ms: int = 0,
) -> UsageOutcome:
    """The amounts are counted, all or none.

    A budget that nobody has created has no limits. `input_tokens`, `output_tokens` and `wall_ms`
    are added to the dimensions of their names. A report with a `dedup_key` counts once in 24 hours.
    What was used is counted even if the lease is lost: that is logged. Raises `NotFound` if the
    execution does not exist, and `ValidationError`; a breach is an answer, not an error.
    """
    counted = check_amounts(dimensions)
    for name, amount in (
        ("input_tokens", check_amount(input_tokens, field="input_tokens")),
        ("output_tokens", check_amount(output_tokens, field="output_tokens")),
        ("wall_ms", check_amount(wall_ms, field="wall_ms")),
    ):
        if amount:
            counted[name] = check_amount(counted.get(name, 0) + amount, field=name)
    lease, budget = _lease_of(handle), id_of(budget_id)
    reported = await fetch_maybe(
        conn,
        REPORT_USAGE,
        _Reported,
        partition_key=lease.execution_id.partition_key,
        execution_id=lease.execution_id.uuid,
        lease_epoch=lease.lease_epoch,
        lease_id=lease.lease_id,
        budget_id=budget,
        deltas=msgspec.json.encode(counted).decode(),
        dedup_key=check_dedup_key(dedup_key),
    )
    if reported is None:
        raise NotFound("execution", lease.execution_id)
    if not reported.held:
        log.warning(
            "stale report of usage: execution %s, lease epoch %s, budget %s; it is counted",
            lease.execution_id,
            lease.lease_epoch,
            budget,
        )
    return reported.read()


def _lease_of(handle: object) -> Lease:
    if isinstance(handle, bytes):
        return LeaseHandle.decode(handle).lease
    if isinstance(handle, LeaseHandle):
        return handle.lease
    if not isinstance(handle, Lease):
        raise invalid_input("handle", handle, "must be a lease, or its handle")
    return check_type(handle, Lease, field="handle")
