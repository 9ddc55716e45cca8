"""Limits of an application, and what a task says of limits and of keys that its submits share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from flowfabric.errors import ConfigError, ValidationError, invalid_input
from flowfabric.ids import check_name
from flowfabric.limits import (
    Debounce,
    Merged,
    QuotaLimits,
    Rate,
    Unique,
    check_limit_key,
    quota_limits,
    quota_policy_id,
)

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike


class AppLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What `app.limit` returns: a limit for each key of the tasks that are given it."""

    name: str
    namespace: str
    limits: QuotaLimits

    @property
    def quota_policy_id(self) -> UUID:
        return quota_policy_id(self.namespace, self.name)


def define_limit(
    name: str, *, namespace: str, concurrency: int | None, rate: Rate | None
) -> AppLimit:
    """The limit of these numbers; raises `ConfigError` if one is not valid."""
    try:
        check_name(name, field="limit")
        limits = quota_limits(concurrency=concurrency, rate=rate)
    except ValidationError as error:
        shown = name if isinstance(name, str) and name else "limit"  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("limit", shown, error.detail) from None
    return AppLimit(name=name, namespace=namespace, limits=limits)


async def store_limits(engine: EngineLike, limits: Iterable[AppLimit], *, actor: str) -> None:
    """These limits exist; those that existed keep their numbers."""
    for limit in limits:
        await engine.create_quota_policy(
            limit.name, limit.limits, namespace=limit.namespace, actor=actor
        )


class TaskLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of a task, and how the key of a call is found."""

    limit: AppLimit
    key: Callable[..., Any] | str | None

    def key_of(self, kind: str, arguments: Sequence[Any]) -> str | None:
        """The key of a call with these arguments; raises `ValidationError` unless it is text."""
        if not callable(self.key):
            return self.key
        try:
            found = self.key(*arguments)
        except Exception as error:
            why = f"limit_key of task {kind!r} raised {type(error).__name__}: {error}"
            raise ValidationError("invalid_input", why, field="limit_key") from error
        return check_limit_key(found)


def task_limit(limit: object, key: object) -> TaskLimit | None:
    """The limit of a task; raises `ValidationError` if it is none, or the key cannot be one."""
    if limit is None:
        if key is not None:
            raise invalid_input("limit_key", None, "needs limit=")
        return None
    if not isinstance(limit, AppLimit):
        raise invalid_input("limit", limit, 'must be a limit: write limit=app.limit("name", ...)')
    if key is not None and not callable(key):
        check_limit_key(key)
    return TaskLimit(limit=limit, key=key)  # pyright: ignore[reportArgumentType]


def task_merge(unique: object, debounce: object) -> Merged | None:
    """How submits of a task become one execution; raises `ValidationError` if it is not valid."""
    if unique is not None and not isinstance(unique, Unique):
        raise invalid_input("unique", unique, 'must be a Unique: unique=Unique("key")')
    if debounce is not None and not isinstance(debounce, Debounce):
        raise invalid_input("debounce", debounce, 'must be a Debounce: debounce=Debounce("key")')
    if unique is not None and debounce is not None:
        raise invalid_input("debounce", None, "cannot be given with unique")
    return unique or debounce
