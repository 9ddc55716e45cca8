"""A process that finds this on its path is deaf: its listener never listens, waiters only poll."""

from flowfabric.db.listen import Listener


def _stays_deaf(self: Listener) -> None:
    return


Listener.start = _stays_deaf
