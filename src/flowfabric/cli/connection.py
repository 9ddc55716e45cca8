"""Which database a command uses, and the event loop that it runs on."""

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
"""The file into which a running `ff dev` writes the URL of its database."""


def resolve(given: str | None) -> str:
    """The given DSN, else `FF_DATABASE_URL`, else that of the `ff dev` in this directory.

    Raises `ConfigError` if there is none of them.
    """
    dsn = database_url(given)
    if dsn is not None:
        return dsn
    with contextlib.suppress(FileNotFoundError):
        return ADDRESS.read_text().strip()
    raise ConfigError(
        "database",
        DATABASE_URL,
        "is not set, and no `ff dev` runs in this directory; or give --database-url",
    )


@contextlib.asynccontextmanager
async def engine_on(dsn: str) -> AsyncGenerator[Engine]:
    """An engine on this database; closed at the end of the block."""
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=2), role="cli")
    try:
        yield engine
    finally:
        await engine.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine with uvloop if it is installed, else with asyncio."""
    # Run within the `except`, every error of a handler would get the ImportError as its context.
    try:
        from uvloop import run as run_loop
    except ImportError:
        run_loop = asyncio.run
    return run_loop(work)


def ask(database_url: str | None, work: Callable[[Engine], Awaitable[T]]) -> T:
    """The result of `work`, called with an engine on the database of the command."""

    async def connected() -> T:
        async with engine_on(resolve(database_url)) as engine:
            return await work(engine)

    return run(connected())
