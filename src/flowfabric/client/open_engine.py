"""The engine that a client stands on, for the address that it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric.config import DatabaseConfig, behind_pooler, require_database_url

if TYPE_CHECKING:
    from flowfabric.engine.engine import Engine


async def open_engine(
    dsn: str | None, *, pool_size: int, pooler: bool | None, listen: bool
) -> Engine:
    """An engine that is connected to `dsn`, else to `FF_DATABASE_URL`."""
    config = DatabaseConfig(
        dsn=require_database_url(dsn),
        pool_size=pool_size,
        pooler=behind_pooler(pooler),
        listen=listen,
    )
    from flowfabric.engine.engine import Engine  # every operation: not before it is needed

    return await Engine.connect(config)
