"""Which database a command speaks to, and the event loop it runs on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

from flowfabric.config import DATABASE_URL, DatabaseConfig, database_url
from flowfabric.engine.engine import Engine
from flowfabric.errors import ConfigError

T = TypeVar("T")

HOME: Final = Path(".flowfabric")
ADDRESS: Final = HOME / "database-url"
"""Where a running `ff dev` leaves the address of its database."""


def resolve(given: str | None) -> str:
    """The DSN given or of the environment, else that of a running `ff dev` in this directory."""
    dsn = database_url(given)
    if dsn is not None:
        return dsn
    with contextlib.suppress(FileNotFoundError):
        return ADDRESS.read_text().strip()
    raise ConfigError(
        "database", DATABASE_URL, "not set, and no `ff dev` runs here; or give --database-url"
    )


@contextlib.asynccontextmanager
async def engine_on(dsn: str) -> AsyncGenerator[Engine]:
    """The engine for one command."""
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=2), role="cli")
    try:
        yield engine
    finally:
        await engine.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on the fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def ask(database_url: str | None, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Run one piece of work on the engine of the database that the command was given."""

    async def asked() -> T:
        async with engine_on(resolve(database_url)) as engine:
            return await work(engine)

    return run(asked())
