"""Wake-ups inside this process: what NOTIFY says to others, said without the database.

A transaction names topics while it runs. Once it has ended, the subscribers of these topics in this
process are called, also where LISTEN does not work. What is to be done only if it was committed is
called then too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable
from contextvars import ContextVar
from typing import Final

_subscribed: Final[dict[str, tuple[Callable[[], None], ...]]] = {}
_lock: Final = threading.Lock()  # workers and clients may run in different threads


class _AtEnd:
    """What a transaction leaves to do for its end."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.if_committed: list[Callable[[], None]] = []


_at_end: Final[ContextVar[_AtEnd | None]] = ContextVar("flowfabric_at_end", default=None)


@contextlib.contextmanager
def subscribed(topic: str, call: Callable[[], None]) -> Generator[None]:
    """Inside the block `call` is called after each transaction of this process that named `topic`.

    It is called in the thread of that transaction, and must return at once.
    """
    with _lock:
        _subscribed[topic] = (*_subscribed.get(topic, ()), call)
    try:
        yield
    finally:
        with _lock:
            others = tuple(each for each in _subscribed[topic] if each is not call)
            if others:
                _subscribed[topic] = others
            else:
                del _subscribed[topic]


def signal(topics: Iterable[str]) -> None:
    """Call the subscribers of these topics when the transaction that runs now has ended.

    Without effect outside `signals_at_end`: a caller that has its own transaction commits later.
    """
    at_end = _at_end.get()
    if at_end is not None and _subscribed:
        at_end.topics.update(topics)


def after_commit(call: Callable[[], None]) -> None:
    """Call it once the transaction that runs now is committed, and never if it is rolled back.

    If the answer to the commit was lost it is not called: for counts, not for correctness. Without
    effect outside `signals_at_end`.
    """
    at_end = _at_end.get()
    if at_end is not None:
        at_end.if_committed.append(call)


@contextlib.contextmanager
def signals_at_end() -> Generator[None]:
    """The block is one transaction; its signals are sent at its end.

    They are sent after an error too: the transaction may be committed although its answer was lost,
    and a signal without a change costs one query.
    """
    at_end = _AtEnd()
    token = _at_end.set(at_end)
    try:
        yield
        for call in at_end.if_committed:
            call()
    finally:
        _at_end.reset(token)
        for topic in at_end.topics:
            for call in _subscribed.get(topic, ()):
                call()
