"""A budget as it is stored: its definition, its usage and its breaches."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.instants import instant
from flowfabric.states import EnforcementMode

# Policy and usage are read by one statement, so they belong together.
STATUS_COLUMNS: Final[LiteralString] = """
       p.budget_id, p.scope_type, p.scope_id, p.enforcement_mode, p.policy_json::text AS policy,
       coalesce((SELECT jsonb_object_agg(u.dimensions_key, u.current_value)
                   FROM ff.budget_usage u
                  WHERE (u.partition_key, u.budget_id) = (p.partition_key, p.budget_id)),
                '{}')::text AS usage,
       p.breach_count, p.soft_breach_count, p.last_breach_at_ms, p.last_breach_dim,
       p.next_reset_at_ms, p.last_reset_at_ms, p.reset_count, p.period_no, p.created_at_ms,
       p.updated_at_ms"""
"""The columns of `StoredBudget`, from `ff.budget_policy p`."""


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A budget: its limits, what was used in this period, and how often it was passed."""

    budget_id: UUID
    scope_type: str
    scope_id: str
    enforcement_mode: EnforcementMode
    usage: dict[str, int]
    hard_limits: dict[str, int]
    soft_limits: dict[str, int]
    breach_count: int
    soft_breach_count: int
    last_breach_at: datetime | None
    last_breach_dim: str | None
    next_reset_at: datetime | None
    created_at: datetime
    on_hard_limit: str
    on_soft_limit: str
    reset_interval: float
    """Seconds; 0: the budget is not periodic."""
    reset_count: int
    last_reset_at: datetime | None
    period_no: int
    updated_at: datetime
    """When its definition or its period changed last; usage does not count."""

    @property
    def spent(self) -> bool:
        """Has a dimension no room left under its hard limit?"""
        return any(
            limit > 0 and self.usage.get(dimension, 0) >= limit
            for dimension, limit in self.hard_limits.items()
        )


class _Policy(msgspec.Struct, frozen=True):
    hard_limits: dict[str, int]
    soft_limits: dict[str, int]
    reset_interval_ms: int
    on_hard_limit: str
    on_soft_limit: str


class StoredBudget(msgspec.Struct, frozen=True):
    """One row of `STATUS_COLUMNS`."""

    budget_id: UUID
    scope_type: str
    scope_id: str
    enforcement_mode: str
    policy: str
    usage: str
    breach_count: int
    soft_breach_count: int
    last_breach_at_ms: int | None
    last_breach_dim: str | None
    next_reset_at_ms: int | None
    last_reset_at_ms: int | None
    reset_count: int
    period_no: int
    created_at_ms: int
    updated_at_ms: int

    def status(self) -> BudgetStatus:
        """The row as its caller sees it."""
        policy = msgspec.json.decode(self.policy, type=_Policy)
        return BudgetStatus(
            budget_id=self.budget_id,
            scope_type=self.scope_type,
            scope_id=self.scope_id,
            enforcement_mode=EnforcementMode(self.enforcement_mode),
            usage=msgspec.json.decode(self.usage, type=dict[str, int]),
            hard_limits=policy.hard_limits,
            soft_limits=policy.soft_limits,
            breach_count=self.breach_count,
            soft_breach_count=self.soft_breach_count,
            last_breach_at=instant(self.last_breach_at_ms),
            last_breach_dim=self.last_breach_dim,
            next_reset_at=instant(self.next_reset_at_ms),
            created_at=instant(self.created_at_ms),
            updated_at=instant(self.updated_at_ms),
            on_hard_limit=policy.on_hard_limit,
            on_soft_limit=policy.on_soft_limit,
            reset_interval=policy.reset_interval_ms / 1000,
            reset_count=self.reset_count,
            last_reset_at=instant(self.last_reset_at_ms),
            period_no=self.period_no,
        )
