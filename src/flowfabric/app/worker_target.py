"""What a worker connects to: a database, or a server that has one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flowfabric.config import (
    DATABASE_URL,
    SERVER_URL,
    DatabaseConfig,
    behind_pooler,
    direct_database_url,
    is_server_url,
    require_database_url,
)
from flowfabric.errors import ConfigError

if TYPE_CHECKING:
    from flowfabric.remote.address import ServerAddress


def worker_target(
    dsn: str | None,
    url: str | None,
    *,
    direct_dsn: str | None,
    pooler: bool | None,
    listen: bool,
    token: str | None,
    ca: str | None,
) -> DatabaseConfig | ServerAddress:
    """The server at `url`, else the database at `dsn`, else what the environment names.

    Raises `ConfigError` if both are given, or something that only the other one has.
    """
    if url is not None and dsn is not None:
        raise ConfigError("worker", "url", "and dsn cannot both be given")
    server = dsn if url is None else url
    if server is None and not os.environ.get(DATABASE_URL):
        server = os.environ.get(SERVER_URL)
    if url is not None or is_server_url(server):
        from flowfabric.remote.address import ServerAddress

        return ServerAddress(url=server or "", token=token, ca=ca)
    if token is not None or ca is not None:
        why = "is for a server; a database has its password in the DSN"
        raise ConfigError("worker", "ca" if token is None else "token", why)
    return DatabaseConfig(
        dsn=require_database_url(dsn),
        direct_dsn=direct_database_url(direct_dsn),
        pool_size=6,
        pooler=behind_pooler(pooler),
        listen=listen,
    )
