"""Reads one value with asyncpg, for the adapters whose environment has asyncpg."""

from typing import Any

import asyncpg


async def fetchval(dsn: str, statement: str, *values: object) -> Any:
    """The first column of the first row, read on a new connection."""
    conn = await asyncpg.connect(dsn)
    try:
        return await conn.fetchval(statement, *values)
    finally:
        await conn.close()
