"""A hook for tests: called before each statement of an operation, and before its commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from flowfabric.db.rows import Connection

Step: TypeAlias = "Callable[[Connection, str], Awaitable[None]]"
"""Called with the connection and the name of the statement, which then waits for it."""

COMMIT: Final = "COMMIT"
current_step: Final[ContextVar[Step | None]] = ContextVar("current_step", default=None)


@contextmanager
def stepped(step: Step) -> Generator[None]:
    """Within the block, `step` is awaited before every statement and commit of this task."""
    token = current_step.set(step)
    try:
        yield
    finally:
        current_step.reset(token)
