"""The engine that a client stands on, for the address that it was given."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from flowfabric.config import (
    DATABASE_URL,
    SERVER_URL,
    DatabaseConfig,
    behind_pooler,
    is_server_url,
    require_database_url,
)
from flowfabric.errors import ConfigError, NeedsDatabase

if TYPE_CHECKING:
    from flowfabric.engine.engine import Engine
    from flowfabric.remote.engine_like import EngineLike


class Connecting(NamedTuple):
    """How a client connects to a database."""

    pool_size: int
    pooler: bool | None
    listen: bool


def on_database(engine: EngineLike) -> Engine:
    """The engine, if it is connected to the database itself; else raises `NeedsDatabase`."""
    if engine.is_remote is True:
        raise NeedsDatabase("engine", "the database is behind a server, and cannot be reached")
    return engine


async def open_engine(
    dsn: str | None, options: Connecting, *, token: str | None = None, ca: str | None = None
) -> EngineLike:
    """An engine on `dsn`, a database or a server; else on what the environment names."""
    if dsn is None and not os.environ.get(DATABASE_URL):
        dsn = os.environ.get(SERVER_URL) or None
    if dsn is not None and is_server_url(dsn):
        from flowfabric.remote.address import ServerAddress
        from flowfabric.remote.engine import RemoteEngine

        return await RemoteEngine.connect(ServerAddress(url=dsn, token=token, ca=ca))
    if token is not None or ca is not None:
        why = "is for a server; a database has its password in the DSN"
        raise ConfigError("client", "ca" if token is None else "token", why)
    config = DatabaseConfig(
        dsn=require_database_url(dsn),
        pool_size=options.pool_size,
        pooler=behind_pooler(options.pooler),
        listen=options.listen,
    )
    from flowfabric.engine.engine import Engine  # every operation: not before it is needed

    return await Engine.connect(config)
