"""Connections of a pool that wait for their next use, and the operations that each has run.

To give a connection back to the driver's pool, and to take it out again, costs a task and some
turns of the event loop: a good part of what a small statement costs the client. A session plans a
statement when it first runs it, so an operation goes to a connection that has run it before.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

PooledConnection: TypeAlias = "PoolConnectionProxy[Any]"


class KeptConnections:
    """Taken out of the driver's pool, and not in use."""

    def __init__(self) -> None:
        self._kept: list[PooledConnection] = []
        self._operations: dict[PooledConnection, set[str]] = {}
        """What each connection has run, kept or in use, since the driver's pool gave it out."""

    def take(self, operation: str) -> PooledConnection | None:
        """A connection that has run the operation, else the one that was used last."""
        while self._kept:
            known = [conn for conn in self._kept if operation in self._operations[conn]]
            conn = known[-1] if known else self._kept[-1]
            self._kept.remove(conn)
            if _is_open(conn):
                return conn
            self.forget(conn)
        return None

    def keep(self, conn: PooledConnection, operation: str) -> bool:
        """Keep the connection after a use that ended well; False if it has to be given back."""
        if not _is_open(conn) or conn.is_in_transaction():
            return False
        self._operations.setdefault(conn, set()).add(operation)
        self._kept.append(conn)
        return True

    def forget(self, conn: PooledConnection) -> None:
        """The connection goes back to the driver's pool."""
        self._operations.pop(conn, None)

    def take_all(self) -> list[PooledConnection]:
        """Every connection that is kept; none is kept any more."""
        kept, self._kept = self._kept, []
        self._operations.clear()
        return kept


def _is_open(conn: PooledConnection) -> bool:
    """False too for a connection that was lost: the driver's pool has taken it back then."""
    try:
        return not conn.is_closed()
    except asyncpg.InterfaceError:
        return False
