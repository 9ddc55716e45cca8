"""What is to happen once a transaction is committed, and not if it is rolled back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Final


class _Transaction:
    """What one transaction waits to do; tasks that it has started may outlive it."""

    __slots__ = ("calls", "has_ended")

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.has_ended = False


_running: Final[ContextVar[_Transaction | None]] = ContextVar(
    "flowfabric_transaction", default=None
)


def in_transaction() -> bool:
    """Does this run inside `calls_at_commit`?"""
    transaction = _running.get()
    return transaction is not None and not transaction.has_ended


def at_commit(call: Callable[[], None]) -> None:
    """Call it once the transaction that runs now is committed; at once if none runs here."""
    transaction = _running.get()
    if transaction is None or transaction.has_ended:
        call()
    else:
        transaction.calls.append(call)


@contextlib.contextmanager
def calls_at_commit() -> Generator[None]:
    """The block is one transaction, which is committed unless the block raises."""
    transaction = _Transaction()
    token = _running.set(transaction)
    try:
        yield
    finally:
        transaction.has_ended = True
        _running.reset(token)
    for call in transaction.calls:
        call()
