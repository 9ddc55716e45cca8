"""What stands between a client and the database: an address of its own, and the way on."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import Self, TypeAlias
from urllib.parse import parse_qs, urlsplit, urlunsplit

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Forwarder(ABC):
    """Takes connections to the database of a DSN; `dsn` leads through it."""

    def __init__(self, dsn: str) -> None:
        self._parts = urlsplit(dsn)
        self.dsn = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, dsn: str) -> AsyncGenerator[Self]:
        """One that leads to `dsn` for as long as the block lasts."""
        forwarder = cls(dsn)
        server = await asyncio.start_server(forwarder.forward, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user = forwarder._parts.netloc.rpartition("@")[0] or "postgres"
        forwarder.dsn = urlunsplit(
            forwarder._parts._replace(netloc=f"{user}@127.0.0.1:{port}", query="sslmode=disable")
        )
        try:
            yield forwarder
        finally:
            server.close()
            await forwarder.stop()

    @abstractmethod
    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its beginning to its end."""

    @abstractmethod
    async def stop(self) -> None:
        """End what is still forwarded."""

    async def connect(self) -> Streams:
        """A connection to the database itself."""
        port = self._parts.port or 5432
        [directory] = parse_qs(self._parts.query).get("host", [""])
        if directory:
            return await asyncio.open_unix_connection(f"{directory}/.s.PGSQL.{port}")
        return await asyncio.open_connection(self._parts.hostname, port)
