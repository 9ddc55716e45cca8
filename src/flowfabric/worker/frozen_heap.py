"""What a process has loaded is not visited by the garbage collector while its worker runs."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def frozen_heap() -> Generator[None]:
    """The collector passes over the objects that exist now, until the block ends.

    They are modules, classes and the application: some hundred thousand, which live as long as the
    process. A full collection visits all of them, for tens of milliseconds in which no handler
    runs. If the process has frozen objects itself, they are left as they are.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
