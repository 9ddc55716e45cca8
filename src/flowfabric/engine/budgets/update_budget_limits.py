"""A budget has other limits from now on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.budgets import check_amounts
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.db.transaction import transact
from flowfabric.engine.budgets.create_budget import check_interval, check_mode
from flowfabric.engine.budgets.lock_budget_as_seen import lock_budget_as_seen
from flowfabric.engine.budgets.unblock_spent import unblock_spent
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import NotFound
from flowfabric.states import EnforcementMode, OperatorEventType

UPDATE_BUDGET_LIMITS: Final[LiteralString] = """
-- budgets.update_budget_limits
WITH seen AS (        -- the budget, locked
    SELECT p.partition_key, p.budget_id, p.policy_json, p.enforcement_mode
      FROM ff.budget_policy p
     WHERE (p.partition_key, p.budget_id)
         = (ff.budget_partition(%(budget_id)s::uuid), %(budget_id)s::uuid)
       FOR NO KEY UPDATE
), changed AS (
    UPDATE ff.budget_policy p
       SET policy_json = p.policy_json || jsonb_build_object(
               'hard_limits', (p.policy_json -> 'hard_limits') || %(hard_limits)s::jsonb,
               'soft_limits', (p.policy_json -> 'soft_limits') || %(soft_limits)s::jsonb,
               'reset_interval_ms', coalesce(%(reset_interval_ms)s::bigint,
                                             (p.policy_json ->> 'reset_interval_ms')::bigint)),
           enforcement_mode = coalesce(%(enforcement_mode)s::text, p.enforcement_mode),
           next_reset_at_ms = CASE WHEN %(reset_interval_ms)s::bigint IS NULL
                                   THEN p.next_reset_at_ms
                                   ELSE clock.now_ms + nullif(%(reset_interval_ms)s::bigint, 0)
                                   END,
           updated_at_ms = clock.now_ms
      FROM seen, (SELECT ff.now_ms() AS now_ms) AS clock
     WHERE (p.partition_key, p.budget_id) = (seen.partition_key, seen.budget_id)
 RETURNING p.policy_json, p.enforcement_mode
)
SELECT seen.policy_json::text AS old, changed.policy_json::text AS new,
       seen.enforcement_mode AS old_mode, changed.enforcement_mode AS new_mode
  FROM seen, changed
"""


class BudgetLimitsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that the budget has now."""

    budget_id: UUID
    hard_limits: dict[str, int]
    soft_limits: dict[str, int]


class _Changed(msgspec.Struct, frozen=True):
    old: str
    new: str
    old_mode: str
    new_mode: str


class _Policy(msgspec.Struct, frozen=True):
    hard_limits: dict[str, int]
    soft_limits: dict[str, int]
    reset_interval_ms: int


async def update_budget_limits(
    pool: Pool,
    budget_id: UUID | str,
    *,
    hard_limits: Mapping[str, int] | None = None,
    soft_limits: Mapping[str, int] | None = None,
    reset_interval: float | timedelta | None = None,
    enforcement_mode: EnforcementMode | str | None = None,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    actor: str = DEFAULT_ACTOR,
) -> BudgetLimitsChanged:
    """The named dimensions have these limits, 0 for none; what is not given stays.

    A new `reset_interval` counts from now. Work that the budget held back and that has room now
    can be claimed at once. A change leaves an operator event. Raises `NotFound`,
    `ValidationError`, and `StaleView` for a budget that was changed after
    `expected_last_mutation_at`.
    """
    budget = id_of(budget_id)
    hard = check_amounts({} if hard_limits is None else hard_limits, field="hard_limits")
    soft = check_amounts({} if soft_limits is None else soft_limits, field="soft_limits")
    interval_ms = None if reset_interval is None else check_interval(reset_interval)
    mode = None if enforcement_mode is None else check_mode(enforcement_mode).value
    check_actor(actor)

    async def update(conn: Connection) -> BudgetLimitsChanged:
        await lock_budget_as_seen(conn, budget, seen_at=expected_last_mutation_at)
        changed = await fetch_maybe(
            conn,
            UPDATE_BUDGET_LIMITS,
            _Changed,
            budget_id=budget,
            hard_limits=msgspec.json.encode(hard).decode(),
            soft_limits=msgspec.json.encode(soft).decode(),
            reset_interval_ms=interval_ms,
            enforcement_mode=mode,
        )
        if changed is None:
            raise NotFound("budget", budget_id)
        old = msgspec.json.decode(changed.old, type=_Policy)
        new = msgspec.json.decode(changed.new, type=_Policy)
        is_changed = (old, changed.old_mode) != (new, changed.new_mode)
        if is_changed or interval_ms is not None:
            await operator_event(
                conn,
                OperatorEventType.BUDGET_LIMITS_CHANGED,
                actor=actor,
                reason=reason,
                budget_id=str(budget),
                old_limits=msgspec.to_builtins(old),
                new_limits=msgspec.to_builtins(new),
                old_enforcement_mode=changed.old_mode,
                new_enforcement_mode=changed.new_mode,
            )
        return BudgetLimitsChanged(
            budget_id=budget, hard_limits=new.hard_limits, soft_limits=new.soft_limits
        )

    done = await transact(pool, "update_budget_limits", update)
    await unblock_spent(pool, budget)
    return done
