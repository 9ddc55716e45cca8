"""Wake-ups inside this process: what NOTIFY says to others, said without the database.

A transaction names topics while it runs. Once it has ended, the subscribers of these topics in this
process are called, also where LISTEN does not work.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable
from contextvars import ContextVar
from typing import Final

_subscribed: Final[dict[str, tuple[Callable[[], None], ...]]] = {}
_lock: Final = threading.Lock()  # workers and clients may run in different threads
_named: Final[ContextVar[set[str] | None]] = ContextVar("flowfabric_signals", default=None)


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
    named = _named.get()
    if named is not None and _subscribed:
        named.update(topics)


@contextlib.contextmanager
def signals_at_end() -> Generator[None]:
    """The block is one transaction; its signals are sent at its end.

    They are sent after an error too: the transaction may be committed although its answer was lost,
    and a signal without a change costs one query.
    """
    named: set[str] = set()
    token = _named.set(named)
    try:
        yield
    finally:
        _named.reset(token)
        for topic in named:
            for call in _subscribed.get(topic, ()):
                call()
