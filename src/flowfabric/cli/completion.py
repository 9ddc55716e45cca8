"""Completion in the shell: the lanes and kinds that the database knows.

A completion never prints an error and never waits long: without a database there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import typer

from flowfabric.cli.connection import resolve, run
from flowfabric.config import DatabaseConfig
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.search_executions import Search
from flowfabric.engine.journal.compensation import COMPENSATE_KIND

_SECONDS: Final = 1.5
_RECENT: Final = 200


def complete_lane(context: typer.Context, incomplete: str) -> list[str]:
    """The lanes that begin with what was typed."""
    return _complete(context, incomplete, _lanes)


def complete_kind(context: typer.Context, incomplete: str) -> list[str]:
    """The kinds of registered workers and of recent executions that begin with what was typed."""
    return _complete(context, incomplete, lambda engine: _kinds(engine, _namespace(context)))


def _complete(
    context: typer.Context, incomplete: str, read: Callable[[Engine], Awaitable[Iterable[str]]]
) -> list[str]:
    given: str | None = context.params.get("database_url")

    async def within_time() -> Iterable[str]:
        async with asyncio.timeout(_SECONDS):
            config = DatabaseConfig(
                dsn=resolve(given), pool_size=1, connect_timeout=_SECONDS, listen=False
            )
            engine = await Engine.connect(config, role="cli")
            try:
                return await read(engine)
            finally:
                await engine.close()

    with contextlib.suppress(Exception):
        return sorted(each for each in set(run(within_time())) if each.startswith(incomplete))
    return []


async def _lanes(engine: Engine) -> list[str]:
    return (await engine.list_lanes(limit=1000)).lanes


async def _kinds(engine: Engine, namespace: str | None) -> set[str]:
    page = await engine.search_executions(Search(namespace=namespace), limit=_RECENT)
    workers = await engine.list_workers(namespace or "default")
    offered = {kind for worker in workers.workers for kind in worker.kinds}
    offered.discard(COMPENSATE_KIND)  # every worker serves it; nobody submits it
    return offered | {found.execution_kind for found in page.executions}


def _namespace(context: typer.Context) -> str | None:
    return context.params.get("namespace")
