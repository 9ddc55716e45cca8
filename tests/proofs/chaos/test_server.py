"""A server that is killed keeps what it acknowledged, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import asyncpg
import psutil

from tests.proofs.chaos.server import Server


async def test_what_was_committed_survives_a_kill() -> None:
    with Server.running() as server:
        await server.start()
        conn = await asyncpg.connect(server.dsn)
        await conn.execute("CREATE TABLE kept AS SELECT 1 AS number")
        durable = await conn.fetch(
            "SELECT setting FROM pg_settings"
            " WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')"
        )
        await server.crash(0)
        again = await asyncpg.connect(server.dsn)

        assert conn.is_closed()
        assert await again.fetchval("SELECT number FROM kept") == 1
        assert [row["setting"] for row in durable] == ["on", "on", "on"]
        [(down, up)] = server.outages
        assert down <= up
        data = Path(server.dsn.partition("host=")[2])
        assert any(_serves(each, data) for each in psutil.process_iter(["cmdline"]))
        await again.close()

    assert not os.path.exists(data.parent)  # noqa: ASYNC240  a test may wait for a disk
    assert not any(_serves(each, data) for each in psutil.process_iter(["cmdline"]))


def _serves(process: psutil.Process, data: Path) -> bool:
    return str(data) in (process.info["cmdline"] or ())
