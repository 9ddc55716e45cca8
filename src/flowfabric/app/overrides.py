"""Overrides of dependencies: a test gives handlers a fake instead of the real thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowfabric.app.depends import Plan


class Override:
    """While this block is open, `fake` is called instead of `factory`."""

    def __init__(
        self,
        factory: Callable[..., Any],
        fake: Callable[..., Any],
        plan: Plan,
        overrides: Overrides,
    ) -> None:
        self.factory, self.fake, self.plan = factory, fake, plan
        self._overrides = overrides

    def __enter__(self) -> None:
        self._overrides.open.append(self)

    def __exit__(self, *_: object) -> None:
        self._overrides.open.remove(self)


class Overrides:
    """The open overrides of an app, in the order in which they were opened."""

    def __init__(self) -> None:
        self.open: list[Override] = []

    def of(self, factory: Callable[..., Any], *, but_not: tuple[Override, ...]) -> Override | None:
        """The override of this factory that was opened last."""
        for override in reversed(self.open):
            if override.factory == factory and override not in but_not:
                return override
        return None
