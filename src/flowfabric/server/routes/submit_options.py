"""Options of a submit that stand for several fields: limits, budgets, unique and debounce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from flowfabric.budgets import attach, budget_names
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, NewExecution
from flowfabric.ids import ExecutionId, new_uuid
from flowfabric.limits import (
    Debounce,
    Merged,
    Unique,
    check_limit_key,
    merge_key,
    quota_key_id,
    quota_policy_id,
)
from flowfabric.policy import ExecutionPolicy
from flowfabric.server.call import ApiCall
from flowfabric.server.problems import invalid


class LimitOption(msgspec.Struct, frozen=True, kw_only=True):
    """The limit that counts the execution, by its name, and the key that it is counted under."""

    name: str
    key: str | None = None


class UniqueOption(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of the key at a time: a submit meanwhile answers with it, or cancels it."""

    key: str
    until: Literal["started", "ended"] = "ended"
    on_conflict: Literal["return", "cancel_old"] = "return"


class DebounceOption(msgspec.Struct, frozen=True, kw_only=True):
    """Submits of the key within `wait` seconds of one another become one execution."""

    key: str
    wait: float = 5.0
    max_wait: float | None = None
    payload: Literal["first", "last"] = "last"


def with_limit(fields: dict[str, Any], limit: LimitOption | None, partitions: int) -> None:
    """The fields of an execution that has the limit; it is in the partition of the key."""
    if limit is None:
        return
    policy = quota_policy_id(fields["namespace"], limit.name)
    fields["quota_policy_id"], fields["limit_key"] = policy, limit.key
    if fields["execution_id"] is None and fields["idempotency_key"] is None:
        key = "" if limit.key is None else check_limit_key(limit.key)
        fields["execution_id"] = ExecutionId(quota_key_id(policy, key) % partitions, new_uuid())


def with_budgets(
    fields: dict[str, Any], policy: ExecutionPolicy | None, budgets: Sequence[str]
) -> None:
    """The fields of an execution that is held back while one of the budgets is spent."""
    fields["policy"] = attach(policy, budget_names(budgets))


def with_key(
    fields: dict[str, Any], unique: UniqueOption | None, debounce: DebounceOption | None
) -> None:
    """The fields of an execution whose key is that of `unique` or `debounce`."""
    if unique is not None and debounce is not None:
        raise invalid("debounce", "cannot be given with unique")
    if unique is not None:
        merged: Merged = Unique(unique.key)
    elif debounce is not None:
        merged = Debounce(debounce.key, wait=debounce.wait, max_wait=debounce.max_wait)
    else:
        return
    if fields["idempotency_key"] is not None or fields["idempotency_window"] is not None:
        raise invalid("idempotency_key", "cannot be given with unique or debounce")
    if debounce is not None and (fields["delay"], fields["delay_until"]) != (None, None):
        raise invalid("delay", "cannot be given with debounce")
    fields["idempotency_key"] = merge_key(merged, fields["execution_kind"])
    if unique is not None:
        fields["unique_until"], fields["on_conflict"] = unique.until, "return"


async def submit_keyed(
    call: ApiCall,
    new: NewExecution,
    unique: UniqueOption | None,
    debounce: DebounceOption | None,
    *,
    minted: bool,
) -> Created | Duplicate:
    """Create the execution, or find the one that has its key, or put that one off.

    `minted`: its id was made for this request.
    """
    if unique is not None:
        answer = await call.engine.create_unique_execution(new, on_conflict=unique.on_conflict)
    elif debounce is not None:
        answer = await call.engine.debounce_execution(
            new, wait=debounce.wait, max_wait=debounce.max_wait, payload=debounce.payload
        )
    else:
        answer = await call.services.submit(new, minted=minted)
    if not isinstance(answer, Created | Duplicate):
        raise answer
    return answer
