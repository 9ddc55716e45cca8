"""Where a test can hold an operation up: before each of its statements, and before it commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from flowfabric.db.rows import Connection

Step: TypeAlias = "Callable[[Connection, str], Awaitable[None]]"
"""Told the connection and the statement's name; what it awaits comes before the statement."""

COMMIT: Final = "COMMIT"
stepping: Final[ContextVar[Step | None]] = ContextVar("stepping", default=None)


@contextmanager
def stepped(step: Step) -> Generator[None]:
    """Everything that this task does to the database meanwhile asks `step` first."""
    token = stepping.set(step)
    try:
        yield
    finally:
        stepping.reset(token)
