"""The garbage collector of workers and servers: it passes over what was loaded, and runs seldom."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator
from typing import Final

_MADE_BETWEEN: Final = 20_000
"""How many more objects there are at the next collection; Python's default is 700."""


@contextlib.contextmanager
def frozen_heap() -> Generator[None]:
    """The collector passes over the objects that exist now, until the block ends.

    They are modules, classes and the application: some hundred thousand, which live as long as the
    process. A full collection visits all of them, for tens of milliseconds in which no handler
    runs. Handlers that wait hold thousands of objects, which go without the collector: it looks
    for cycles less often, for a sixth of the time of a durable step otherwise. If the process has
    frozen objects itself, all is left as it is.
    """
    if gc.get_freeze_count():
        yield
        return
    first, *others = before = gc.get_threshold()
    gc.freeze()
    if 0 < first < _MADE_BETWEEN:
        gc.set_threshold(_MADE_BETWEEN, *others)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
