"""A connection that can be kept alive while its user does something else.

Postgres ends a session whose transaction is idle for too long. A statement from time to time
prevents that, but the driver allows one operation at a time on a connection: the user's operations
wait for such a statement, and none is sent while an operation of the user is in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, LiteralString, cast

import asyncpg

from flowfabric.db.connection import BaseConnection
from flowfabric.db.faults import DRIVER_ERRORS
from flowfabric.db.rows import Connection

_OPERATIONS: Final = frozenset(
    {
        "bind",
        "bind_execute",
        "bind_execute_many",
        "close_portal",
        "close_statement",
        "copy_in",
        "copy_out",
        "execute",
        "prepare",
        "query",
    }
)
"""The methods of the driver's protocol that talk to the server."""
KEEP_ALIVE: Final[LiteralString] = "-- db.kept_alive\nSELECT"
_TIMEOUT: Final = 5.0


class _Guard:
    """The driver's protocol; its operations wait for a statement that keeps the session alive."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._running = 0
        self._alive: asyncio.Future[None] | None = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._protocol, name)
        if name not in _OPERATIONS:
            return attribute

        async def operation(*args: Any, **kwargs: Any) -> Any:
            if self._alive is not None:
                await asyncio.wait((self._alive,))
            self._running += 1
            try:
                return await attribute(*args, **kwargs)
            finally:
                self._running -= 1

        return operation

    @property
    def idle(self) -> bool:
        return not self._running and self._alive is None

    async def keep_alive(self) -> None:
        self._alive = alive = asyncio.get_running_loop().create_future()
        try:
            await self._protocol.query(KEEP_ALIVE, _TIMEOUT)
        finally:
            self._alive = None
            alive.set_result(None)


class KeptAliveConnection(BaseConnection):
    """A connection for `keep_alive`."""

    __slots__ = ("_guard",)

    @property
    def _protocol(self) -> Any:
        """Every operation of the driver, on whatever object of it, goes through this attribute."""
        return self._guard

    @_protocol.setter
    def _protocol(self, protocol: Any) -> None:
        self._guard: _Guard | None = None if protocol is None else _Guard(protocol)

    @property
    def idle_guard(self) -> _Guard | None:
        """The guard, unless an operation is in progress or between two of its steps.

        The driver prepares some statements without a name, and any other statement in between
        would make the server forget those.
        """
        section: Any = self._stmt_exclusive_section
        guard = self._guard
        return guard if guard is not None and guard.idle and not section._acquired else None


def is_lost(conn: Connection) -> bool:
    """Is the connection closed? The pool takes a connection back when the server closes it."""
    try:
        return conn.is_closed()
    except asyncpg.InterfaceError:
        return True


async def keep_alive(conn: Connection) -> None:
    """Tell the server that the session is in use, unless an operation is in progress.

    Does nothing on a connection that is lost: its user learns of that by itself.
    """
    guard = None if is_lost(conn) else cast("KeptAliveConnection", conn).idle_guard
    if guard is not None:
        with contextlib.suppress(*DRIVER_ERRORS):
            await guard.keep_alive()
