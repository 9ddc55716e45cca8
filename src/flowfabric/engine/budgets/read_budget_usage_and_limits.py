"""Usage and limits of a budget, as admission reads them."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.rows import Connection, fetch_one

READ_BUDGET_USAGE_AND_LIMITS: Final[LiteralString] = """
-- budgets.read_budget_usage_and_limits
SELECT coalesce((SELECT jsonb_object_agg(l.kind || ':' || each.key, each.value)
                   FROM ff.budget_policy p, (VALUES ('hard'), ('soft')) AS l (kind),
                        jsonb_each(p.policy_json -> (l.kind || '_limits')) AS each
                  WHERE (p.partition_key, p.budget_id)
                      = (ff.budget_partition(%(budget_id)s::uuid), %(budget_id)s::uuid)),
                '{}')::text AS limits,
       coalesce((SELECT jsonb_object_agg(u.dimensions_key, u.current_value)
                   FROM ff.budget_usage u
                  WHERE (u.partition_key, u.budget_id)
                      = (ff.budget_partition(%(budget_id)s::uuid), %(budget_id)s::uuid)),
                '{}')::text AS usage
"""


class BudgetUsageAndLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits by `hard:<dimension>` and `soft:<dimension>`, usage by dimension."""

    limits: dict[str, int]
    usage: dict[str, int]


class _Read(msgspec.Struct, frozen=True):
    limits: str
    usage: str


async def read_budget_usage_and_limits(
    conn: Connection, budget_id: UUID | str
) -> BudgetUsageAndLimits:
    """Both at one moment; a budget that does not exist has no limits and no usage."""
    row = await fetch_one(conn, READ_BUDGET_USAGE_AND_LIMITS, _Read, budget_id=id_of(budget_id))
    return BudgetUsageAndLimits(
        limits=msgspec.json.decode(row.limits, type=dict[str, int]),
        usage=msgspec.json.decode(row.usage, type=dict[str, int]),
    )
