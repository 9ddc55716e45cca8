"""Connections: how one is opened, and the bounded pool of a process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Final

import asyncpg

from flowfabric.config import DATABASE_POOLER, DATABASE_URL, DatabaseConfig, redact
from flowfabric.counters import POOL_IN_USE, POOL_WAIT_SECONDS
from flowfabric.db.connect_limit import connect_limit
from flowfabric.db.connection import OwnConnection
from flowfabric.db.faults import DRIVER_ERRORS, as_flowfabric_error, described
from flowfabric.db.kept_alive import KeptAliveConnection
from flowfabric.db.kept_connections import KeptConnections, PooledConnection
from flowfabric.db.notifier import Notifier
from flowfabric.db.rows import Connection
from flowfabric.db.turns import Turns
from flowfabric.errors import (
    ConfigError,
    FlowFabricError,
    OperationTimeout,
    TransportError,
    Unavailable,
)

_CONNECT_ERRORS: Final = (*DRIVER_ERRORS, ValueError, OverflowError)
_CLOSE_WITHIN: Final = 5.0
_PLAN_LIFETIME: Final = 60
"""Seconds after which a statement is prepared again, for the tables as they are then."""

# Every statement of ours starts from few rows and follows indexes. Its cached plan, made while a
# table was small, must not read the whole table when it has grown.
# One plan for any parameters is as good then. Postgres would otherwise plan most of our statements
# anew at every call: it compares estimates, and those of a plan for given arrays are lower.
# A statement that changes several rows locks them in the order of their ids, because it looks them
# up one after the other: a hash join would lock them as they lie in the table.
# A pooler does not pass these settings on: there the role has them, as docs/operations.md says, and
# `ff doctor` warns if not. Plans inside plpgsql functions are cached too; those functions have the
# settings bound to them.
PLANNER_SETTINGS: Final = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}

# Every name of ours has its schema, and every other name is that of Postgres: a function or an
# operator that another user made in schema public is never chosen instead.
SEARCH_PATH: Final = "pg_catalog, pg_temp"

# When the machine of a process loses its power or its network, no packet says so. With these
# settings the server ends the session 15 seconds later: 5 without a packet, then 5 probes that are
# not answered; or after 15 seconds in which data that was sent is not acknowledged. On a Unix
# socket they have no effect and are not needed.
NOTICE_LOST_PEER: Final = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "5",
    "tcp_user_timeout": "15000",
}


async def connect(
    config: DatabaseConfig, *, role: str, limited: bool = True, notice_lost_peer: bool = False
) -> asyncpg.Connection[Any]:
    """Open a connection outside the pool, for long use: the lease renewer, a listener.

    It leads past the pooler if the configuration has a DSN for that. Raises `ConfigError`,
    `Unavailable`, `ResourceExhausted` or `TransportError`. `limited=False` is for a caller that
    spaces its attempts itself; the others wait for their turn at the process's `ConnectLimit`. With
    `notice_lost_peer` the server ends the session 15 seconds after this machine has disappeared.
    """
    config = config.direct()
    settings = _settings(config, role)
    if notice_lost_peer and not config.pooler:
        settings["server_settings"] |= NOTICE_LOST_PEER
    open_one = _connect_in_turn if limited else asyncpg.connect
    try:
        return await open_one(
            config.dsn,
            timeout=config.connect_timeout,
            connection_class=OwnConnection,
            **settings,
        )
    except _CONNECT_ERRORS as error:
        raise _unreachable(config, error) from error


async def _connect_in_turn(dsn: str, **settings: Any) -> asyncpg.Connection[Any]:
    return await connect_limit(dsn).open(partial(asyncpg.connect, dsn, **settings))


_IN_TURN: Final[dict[str, Any]] = {"connect": _connect_in_turn}  # missing in the driver's types


class Pool:
    """At most `pool_size` connections, opened when first needed."""

    def __init__(
        self, config: DatabaseConfig, pool: asyncpg.Pool[Any], *, keeps: bool = True
    ) -> None:
        """Without `keeps` every connection is reset by the driver after each use."""
        self.config = config
        self._pool = pool
        self._closed = False
        self._keeps, self._kept = keeps, KeptConnections()
        self._acquiring, self._turns = 0, Turns()
        self.notifier: Notifier | None = None

    @classmethod
    async def open(
        cls, config: DatabaseConfig, *, role: str = "client", for_handlers: bool = False
    ) -> Pool:
        """Open the pool and check that the database answers.

        With `for_handlers` its connections run statements of users: with the planner settings of
        the server, and kept alive. The database is not asked for an answer then.
        """
        try:
            pool = await asyncpg.create_pool(
                config.dsn,
                min_size=0,  # asyncpg would log a traceback if one could not be opened
                max_size=config.pool_size,
                max_inactive_connection_lifetime=0,
                timeout=config.connect_timeout,
                connection_class=KeptAliveConnection if for_handlers else OwnConnection,
                **_IN_TURN,
                **_settings(config, role, planner_settings=not for_handlers),
            )
            assert pool is not None
            if not for_handlers:
                async with pool.acquire():
                    pass
        except _CONNECT_ERRORS as error:
            raise _unreachable(config, error) from error
        return cls(config, pool, keeps=not for_handlers)

    async def close(self) -> None:
        """Close every connection; connections that do not close in time are terminated."""
        self._closed = True
        if self.notifier is not None:
            self.notifier.close()
        try:
            async with asyncio.timeout(_CLOSE_WITHIN):
                for conn in self._kept.take_all():
                    await self._pool.release(conn)
                await self._pool.close()
        except DRIVER_ERRORS:
            self._pool.terminate()

    @contextlib.asynccontextmanager
    async def connection(self, operation: str = "") -> AsyncGenerator[Connection]:
        """One connection of the pool, for this operation; waits while all are in use.

        Raises `Unavailable`, which is not repeated, once the pool is closed.
        After a `TransportError` or `OperationTimeout` in the block the connection is terminated.
        """
        if self._closed:
            raise Unavailable("connect", "this client or worker is closed; make another one")
        asked_at = time.monotonic()
        conn = self._kept.take(operation)
        if conn is None:
            conn = await self._acquire()
        POOL_WAIT_SECONDS.observe(time.monotonic() - asked_at)
        POOL_IN_USE.change(1)
        is_kept = False
        try:
            yield conn
            # A caller that waits for a connection waits at the driver's pool.
            if self._keeps and not self._acquiring and not self._closed:
                is_kept = self._kept.keep(conn, operation)
        except (TransportError, OperationTimeout):
            with contextlib.suppress(*DRIVER_ERRORS):  # the pool may have closed it
                conn.terminate()
            raise
        finally:
            POOL_IN_USE.change(-1)
            if not is_kept:
                self._kept.forget(conn)
                with contextlib.suppress(*DRIVER_ERRORS):  # the pool then closes it
                    await self._pool.release(conn)

    async def _acquire(self) -> PooledConnection:
        self._acquiring += 1
        try:
            async with self._turns.turn():
                return await self._pool.acquire()
        except _CONNECT_ERRORS as error:
            raise _unreachable(self.config, error) from error
        finally:
            self._acquiring -= 1


def _settings(
    config: DatabaseConfig, role: str, *, planner_settings: bool = True
) -> dict[str, Any]:
    # The server ends a slow statement; the client's timeout is for a connection that is dead.
    client_timeout = config.statement_timeout + 5.0
    if config.pooler:
        return {"statement_cache_size": 0, "command_timeout": client_timeout}
    return {
        "command_timeout": client_timeout,
        "statement_cache_size": 200,
        "max_cached_statement_lifetime": _PLAN_LIFETIME,
        "server_settings": {
            "application_name": f"flowfabric {role}",
            "statement_timeout": f"{round(config.statement_timeout * 1000)}",
            "lock_timeout": f"{round(config.lock_timeout * 1000)}",
            "idle_in_transaction_session_timeout": (
                f"{round(config.idle_transaction_timeout * 1000)}"
            ),
            "jit": "off",
            **({"search_path": SEARCH_PATH, **PLANNER_SETTINGS} if planner_settings else {}),
        },
    }


def _unreachable(config: DatabaseConfig, error: BaseException) -> FlowFabricError:
    if isinstance(error, asyncpg.ClientConfigurationError | ValueError | OverflowError):
        return ConfigError("database", DATABASE_URL, f"{redact(config.dsn)}: {error}")
    found = as_flowfabric_error(error, "connect")
    where = redact(config.dsn)
    if "unsupported startup parameter" in str(error):  # the words of PgBouncer, in every mode
        return ConfigError(
            "database", DATABASE_POOLER, f"{where} is a pooler: set {DATABASE_POOLER}=1 ({error})"
        )
    if isinstance(found, Unavailable):
        return Unavailable("connect", f"{where}: {described(error)}")
    if isinstance(found, TransportError):
        return TransportError(f"cannot reach {where}: {described(error)}")
    return found if str(error) else TransportError(f"cannot reach {where}: timed out")
