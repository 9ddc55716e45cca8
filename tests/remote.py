"""Clients and workers of tests over HTTP: a server in a thread stands before the test's database.

With `--through-server` every client and worker that a test connects to a database is connected to
a server over that database instead. `BOTH` names the tests that always run in both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest

from flowfabric.client import client as clients
from flowfabric.client.open_engine import Connecting, open_engine
from flowfabric.config import DatabaseConfig, is_server_url, require_database_url
from flowfabric.engine.engine import Engine
from flowfabric.loop_thread import LoopThread
from flowfabric.reconcile.loop import reconcile
from flowfabric.remote.address import ServerAddress
from flowfabric.remote.engine import RemoteEngine
from flowfabric.server.serve import address_of, bind, running
from flowfabric.server.settings import Settings
from flowfabric.worker import loop as loops
from flowfabric.worker.link import DatabaseLink, ServerLink, link_to
from flowfabric.worker.settings import WorkerSettings

THROUGH_SERVER = "--through-server"
DIRECT, SERVER = "direct", "server"
_LOCAL = Settings(listen="127.0.0.1:0")


class Servers:
    """One server for each database that is asked for, all on the loop of one thread."""

    def __init__(self) -> None:
        self._loop = LoopThread("servers of tests")
        self._urls: dict[str, str] = {}
        self._engines: dict[str, Engine] = {}
        self._sweeping: dict[str, asyncio.Task[Any]] = {}
        self._open = AsyncExitStack()

    def url(self, dsn: str, *, sweeps: bool = False) -> str:
        """The address of the server over this database, started if there is none."""
        if dsn not in self._urls:
            self._urls[dsn] = self._loop.wait(self._start(dsn))
        if sweeps and dsn not in self._sweeping:
            self._loop.wait(self._sweep(dsn))
        return self._urls[dsn]

    def stop(self) -> None:
        """The servers of this test have stopped."""
        if self._urls:
            self._loop.wait(self._stop())

    def close(self) -> None:
        self._loop.close()

    async def _start(self, dsn: str) -> str:
        engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=8), role="server")
        self._open.push_async_callback(engine.close)
        bound = bind(_LOCAL)
        await self._open.enter_async_context(running(engine, _LOCAL, bound))
        self._engines[dsn] = engine
        return address_of(bound)

    async def _sweep(self, dsn: str) -> None:
        engine = self._engines[dsn]
        engine.listener.start()
        sweeping = reconcile(engine.pool, "server", engine.listener)
        self._sweeping[dsn] = asyncio.create_task(sweeping)

    async def _stop(self) -> None:
        for task in self._sweeping.values():
            task.cancel()
        await asyncio.gather(*self._sweeping.values(), return_exceptions=True)
        await self._open.aclose()
        self._urls, self._engines, self._sweeping = {}, {}, {}
        self._open = AsyncExitStack()


class LinkThroughServer(ServerLink):
    """A link to a server over a database, which is started when the worker connects."""

    def __init__(self, servers: Servers, dsn: str, settings: WorkerSettings, instance: str) -> None:
        super().__init__(ServerAddress(url="http://127.0.0.1:1"), settings, instance)
        self._servers, self._dsn, self._sweeps = servers, dsn, settings.reconcile

    async def connect(self) -> RemoteEngine:
        url = await asyncio.to_thread(self._servers.url, self._dsn, sweeps=self._sweeps)
        self.target = ServerAddress(url=url)
        return await super().connect()


@contextmanager
def through(servers: Servers, patch: pytest.MonkeyPatch) -> Generator[None]:
    """Within the block clients and workers that are given a database are connected to a server."""

    async def open_remote(
        dsn: str | None, options: Connecting, *, token: str | None = None, ca: str | None = None
    ) -> Any:
        if dsn is None or not is_server_url(dsn):
            dsn = await asyncio.to_thread(servers.url, require_database_url(dsn))
        return await open_engine(dsn, options, token=token, ca=ca)

    def link_through(
        target: DatabaseConfig | ServerAddress, settings: WorkerSettings, instance: str
    ) -> DatabaseLink | ServerLink:
        if isinstance(target, ServerAddress):
            return link_to(target, settings, instance)
        return LinkThroughServer(servers, target.dsn, settings, instance)

    patch.setattr(clients, "open_engine", open_remote)
    patch.setattr(loops, "link_to", link_through)
    try:
        yield
    finally:
        patch.undo()
        servers.stop()


BOTH: dict[str, frozenset[str]] = {}
"""Tests that run in both ways in every run, by module."""


def ways(config: pytest.Config, module: str, test: str) -> list[str]:
    """In which ways a test runs."""
    if config.getoption(THROUGH_SERVER):
        return [SERVER]
    return [DIRECT, SERVER] if test in BOTH.get(module, ()) else [DIRECT]
