"""A budget exists, with limits on its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.budgets import check_columns
from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import invalid_input
from flowfabric.ids import check_is_text, check_name
from flowfabric.instants import epoch_ms
from flowfabric.policy import milliseconds
from flowfabric.states import EnforcementMode, OperatorEventType

# A row that another transaction has just inserted is in conflict and not seen yet: `was` is then
# absent, and the caller runs the statement again.
CREATE_BUDGET: Final[LiteralString] = """
-- budgets.create_budget
WITH created AS (
    INSERT INTO ff.budget_policy (
           partition_key, budget_id, scope_type, scope_id, enforcement_mode, policy_json,
           next_reset_at_ms, created_at_ms, updated_at_ms)
    SELECT ff.budget_partition(%(budget_id)s::uuid), %(budget_id)s, %(scope_type)s, %(scope_id)s,
           %(enforcement_mode)s, %(policy_json)s::jsonb,
           clock.now_ms + nullif(%(reset_interval_ms)s::bigint, 0), clock.now_ms, clock.now_ms
      FROM (SELECT coalesce(%(now_ms)s::bigint, ff.now_ms()) AS now_ms) AS clock
        ON CONFLICT DO NOTHING
 RETURNING partition_key
), was AS (
    SELECT (p.scope_type, p.scope_id, p.enforcement_mode, p.policy_json)
         = (%(scope_type)s::text, %(scope_id)s::text, %(enforcement_mode)s::text,
            %(policy_json)s::jsonb) AS same
      FROM ff.budget_policy p
     WHERE (p.partition_key, p.budget_id)
         = (ff.budget_partition(%(budget_id)s::uuid), %(budget_id)s::uuid)
)
SELECT EXISTS (SELECT FROM created) AS created, (SELECT same FROM was) AS same
"""


class BudgetCreated(msgspec.Struct, frozen=True, kw_only=True):
    """The budget exists now, with nothing used."""

    budget_id: UUID


class BudgetAlreadySatisfied(msgspec.Struct, frozen=True, kw_only=True):
    """The budget existed; nothing has changed."""

    budget_id: UUID
    same_definition: bool
    """Is the stored definition the one that was given?"""


class _Answer(msgspec.Struct, frozen=True):
    created: bool
    same: bool | None


async def create_budget(
    conn: Connection,
    budget_id: UUID | str,
    *,
    dimensions: Sequence[str],
    hard_limits: Sequence[int],
    soft_limits: Sequence[int],
    scope_type: str = "global",
    scope_id: str = "",
    enforcement_mode: EnforcementMode | str = EnforcementMode.STRICT,
    on_hard_limit: str = "fail",
    on_soft_limit: str = "warn",
    reset_interval: float | timedelta = 0,
    now: datetime | None = None,
    actor: str = DEFAULT_ACTOR,
) -> BudgetCreated | BudgetAlreadySatisfied:
    """The budget exists; one that existed keeps its definition.

    `budget_id` is a UUID, or a name that stands for one. The three lists are parallel; a limit of 0
    is none. With `reset_interval` the usage is set to 0 again and again, with 0 it never is.
    `scope_type`, `scope_id` and the `on_…` values are labels. An operator event tells of a new
    budget. Needs a transaction. Raises `ValidationError(invalid_input)`, and nothing is written.
    """
    check_actor(actor)
    budget = id_of(budget_id)
    hard, soft = check_columns(dimensions, hard_limits=hard_limits, soft_limits=soft_limits)
    interval_ms = check_interval(reset_interval)
    definition: dict[str, Any] = {
        "scope_type": check_name(scope_type, field="scope_type"),
        "scope_id": scope_id and check_name(scope_id, field="scope_id"),
        "enforcement_mode": check_mode(enforcement_mode).value,
        "policy_json": msgspec.json.encode(
            {
                "hard_limits": hard,
                "soft_limits": soft,
                "reset_interval_ms": interval_ms,
                "on_hard_limit": check_name(on_hard_limit, field="on_hard_limit"),
                "on_soft_limit": check_name(on_soft_limit, field="on_soft_limit"),
            }
        ).decode(),
    }
    check_is_text(scope_id, field="scope_id")
    while True:
        answer = await fetch_one(
            conn,
            CREATE_BUDGET,
            _Answer,
            budget_id=budget,
            reset_interval_ms=interval_ms,
            now_ms=None if now is None else epoch_ms(now),
            **definition,
        )
        if answer.created:
            await operator_event(
                conn,
                OperatorEventType.BUDGET_CREATED,
                actor=actor,
                reason=None,
                budget_id=str(budget),
                scope_type=definition["scope_type"],
                scope_id=definition["scope_id"],
                limits={"hard_limits": hard, "soft_limits": soft, "reset_interval_ms": interval_ms},
            )
            return BudgetCreated(budget_id=budget)
        if answer.same is not None:
            return BudgetAlreadySatisfied(budget_id=budget, same_definition=answer.same)


def check_mode(given: EnforcementMode | str, *, field: str = "enforcement_mode") -> EnforcementMode:
    """The mode; raises `ValidationError(invalid_input)`."""
    try:
        return EnforcementMode(given)
    except ValueError:
        modes = ", ".join(EnforcementMode)
        raise invalid_input(field, given, f"is not one of {modes}") from None


def check_interval(given: float | timedelta, *, field: str = "reset_interval") -> int:
    """The interval in milliseconds, 0 for none; raises `ValidationError(invalid_input)`."""
    interval_ms = milliseconds(given, field=field)
    if interval_ms < 0 or (given and interval_ms == 0):
        raise invalid_input(field, given, "must be 0, or at least a millisecond")
    return interval_ms
