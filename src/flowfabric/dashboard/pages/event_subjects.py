"""What an operator event is about, if it is neither an execution nor a flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from flowfabric.errors import EngineError
from flowfabric.ids import parse_uuid
from flowfabric.limits import quota_policy_id


def subject(details: Mapping[str, Any]) -> tuple[str, str] | None:
    """The path of its page and its name; None if the details name nothing that has a page."""
    for key, page in (
        ("lane_id", "/lanes"),
        ("schedule", "/schedules"),
        ("worker_instance_id", "/workers"),
    ):
        if details.get(key):
            return f"{page}/{details[key]}", str(details[key])
    for key, page in (("budget_id", "/budgets"), ("bulk_id", "/bulk")):
        found = _uuid(details.get(key))
        if found is not None:
            scope = f"{details.get('scope_type', '')} {details.get('scope_id', '')}".strip()
            return f"{page}/{found}", scope or f"\N{HORIZONTAL ELLIPSIS}{found.hex[-8:]}"
    if details.get("limit"):
        name = str(details["limit"])
        limit = _uuid(name) or quota_policy_id(str(details.get("namespace") or "default"), name)
        return f"/quotas/{limit}", name
    if details.get("token_id") or details.get("kid"):
        return "/keys", str(details.get("label") or details.get("kid") or "a token")
    return None


def _uuid(text: object) -> UUID | None:
    try:
        return parse_uuid(str(text), field="id") if text else None
    except EngineError:
        return None
