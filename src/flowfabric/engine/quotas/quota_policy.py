"""A limit as it is stored."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.errors import ValidationError, invalid_input
from flowfabric.instants import instant
from flowfabric.limits import QuotaLimits, quota_policy_id

POLICY_COLUMNS: Final[LiteralString] = """
       p.quota_policy_id, p.namespace, p.name, p.window_ms, p.max_requests_per_window,
       p.active_concurrency_cap, p.jitter_ms, p.created_at_ms, p.updated_at_ms"""


class QuotaPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A limit: what it allows for each of its keys."""

    quota_policy_id: UUID
    namespace: str
    name: str | None
    """None for a limit that was created by its id."""
    limits: QuotaLimits
    created_at: datetime
    updated_at: datetime


class PolicyRow(msgspec.Struct, frozen=True):
    """The columns of `POLICY_COLUMNS`."""

    quota_policy_id: UUID
    namespace: str
    name: str | None
    window_ms: int
    max_requests_per_window: int
    active_concurrency_cap: int
    jitter_ms: int
    created_at_ms: int
    updated_at_ms: int

    def limits(self) -> QuotaLimits:
        """Raises `ValidationError(corruption)` for numbers that no limit can have."""
        try:
            return QuotaLimits(
                window_seconds=self.window_ms / 1000,
                max_requests_per_window=self.max_requests_per_window,
                max_concurrent=self.active_concurrency_cap,
                jitter=self.jitter_ms / 1000,
            )
        except ValidationError as error:
            detail = f"limit {self.quota_policy_id}: {error.detail}"
            raise ValidationError("corruption", detail) from None

    def policy(self) -> QuotaPolicy:
        return QuotaPolicy(
            quota_policy_id=self.quota_policy_id,
            namespace=self.namespace,
            name=self.name,
            limits=self.limits(),
            created_at=instant(self.created_at_ms),
            updated_at=instant(self.updated_at_ms),
        )


def policy_id(name_or_id: str | UUID, namespace: str) -> UUID:
    """The id of a limit that is given by its name or its id."""
    if isinstance(name_or_id, UUID):
        return name_or_id
    if not isinstance(name_or_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid_input("limit", name_or_id, "must be a name or a UUID")
    return quota_policy_id(namespace, name_or_id)


def limit_columns(limits: QuotaLimits) -> dict[str, int]:
    """The limits as the parameters of a statement."""
    return {
        "window_ms": limits.window_ms,
        "max_requests_per_window": limits.max_requests_per_window,
        "active_concurrency_cap": limits.max_concurrent,
        "jitter_ms": limits.jitter_ms,
    }
