"""Budgets as callers name them, and the amounts that they limit and report; all checked here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast
from uuid import UUID

import msgspec

from flowfabric.errors import invalid_input
from flowfabric.ids import check_is_text, check_list, check_name, check_text
from flowfabric.policy import ExecutionPolicy


class OwnBudgets:
    """Stands for the budgets of the execution that starts children."""

    def __repr__(self) -> str:
        return "ctx.budgets"


OWN_BUDGETS: Final = OwnBudgets()
GivenBudgets: TypeAlias = UUID | str | Sequence[UUID | str]
"""One budget or several, by id or name."""

MAX_AMOUNT: Final = 2**63 - 1
MAX_DIMENSIONS: Final = 100
_UUID: Final = re.compile(
    "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
)


def budget_id(given: UUID | str) -> UUID:
    """The id of the budget: given itself, or derived from the name; `ff.budget_id` does the same.

    Raises `ValidationError(invalid_input)` for a name that cannot be one.
    """
    if isinstance(given, UUID):
        return given
    text = check_budget_name(given)
    if _UUID.fullmatch(text):
        return UUID(text)
    digest = hashlib.sha256(f"flowfabric.budget\x1f{text}".encode()).digest()
    return UUID(bytes=digest[:16], version=5)


def check_budget_name(given: object) -> str:
    """The name or id as text; raises `ValidationError(invalid_input)`."""
    return check_name(check_is_text(given, field="budget"), field="budget")


def budget_names(given: GivenBudgets | None) -> tuple[str, ...]:
    """The budgets that work is attached to, as texts, each once; raises `ValidationError`."""
    if given is None:
        return ()
    if isinstance(given, UUID | str):
        given = (given,)
    return tuple(
        dict.fromkeys(
            str(each) if isinstance(each, UUID) else check_budget_name(each)
            for each in check_list(given, field="budget")
        )
    )


def attach(policy: ExecutionPolicy | None, budgets: Sequence[str]) -> ExecutionPolicy | None:
    """The policy, with these budgets added to its own; raises `ValidationError` for too many."""
    if not budgets:
        return policy
    policy = policy or ExecutionPolicy()
    every = tuple(dict.fromkeys((*policy.budget_ids, *budgets)))
    return msgspec.structs.replace(policy, budget_ids=every)


def check_dimension(name: object, *, field: str = "dimension") -> str:
    """The name of a dimension: 1 to 256 printable bytes; raises `ValidationError`."""
    return check_name(check_is_text(name, field=field), field=field)


def check_amount(value: object, *, field: str) -> int:
    """A whole number from 0 to 2^63-1; raises `ValidationError(invalid_input)`."""
    if type(value) is not int:
        raise invalid_input(field, value, "must be a whole number")
    if not 0 <= value <= MAX_AMOUNT:
        raise invalid_input(field, value, "must be from 0 to 2^63-1")
    return value


def check_amounts(given: object, *, field: str = "dimensions") -> dict[str, int]:
    """Amounts by dimension; raises `ValidationError(invalid_input)`."""
    if not isinstance(given, Mapping):
        raise invalid_input(field, given, "must map dimensions to whole numbers")
    entries = cast("Mapping[object, object]", given)
    if len(entries) > MAX_DIMENSIONS:
        raise invalid_input(field, len(entries), f"must be at most {MAX_DIMENSIONS} dimensions")
    return {
        check_dimension(name, field=field): check_amount(amount, field=f"{field}[{name!r}]")
        for name, amount in entries.items()
    }


def check_columns(
    dimensions: Sequence[str], **columns: Sequence[int] | None
) -> tuple[dict[str, int], ...]:
    """Parallel lists as one map for each; a column that is None is an empty map.

    Raises `ValidationError(invalid_input)` for lists of unequal lengths, a dimension that is named
    twice, and amounts that cannot be.
    """
    names = [check_dimension(name, field="dimensions") for name in _listed(dimensions)]
    for name in names:
        if names.count(name) > 1:
            raise invalid_input("dimensions", name, "is named twice")
    maps: list[dict[str, int]] = []
    for field, column in columns.items():
        if column is None:
            maps.append({})
            continue
        amounts = check_list(column, field=field)
        if len(amounts) != len(names):
            rule = f"must be as many as the {len(names)} dimensions, not {len(amounts)}"
            raise invalid_input(field, None, rule)
        maps.append(check_amounts(dict(zip(names, amounts, strict=True)), field=field))
    return tuple(maps)


def _listed(dimensions: object) -> tuple[object, ...]:
    names = check_list(dimensions, field="dimensions")
    if len(names) > MAX_DIMENSIONS:
        raise invalid_input("dimensions", len(names), f"must be at most {MAX_DIMENSIONS}")
    return names


def check_dedup_key(given: str | None, *, field: str = "dedup_key") -> str:
    """The key, empty for none; raises `ValidationError(invalid_input)`."""
    if given is None or given == "":
        return ""
    return check_text(given, field=field, at_most=1024)
