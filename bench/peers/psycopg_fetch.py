"""Reads one value with psycopg, for the adapters whose environment has psycopg."""

from typing import Any, LiteralString

import psycopg


async def fetchval(dsn: str, statement: LiteralString, *values: object) -> Any:
    """The first column of the first row, read on a new connection; None without a row."""
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        row = await (await conn.execute(statement, values or None)).fetchone()
        return row[0] if row else None
