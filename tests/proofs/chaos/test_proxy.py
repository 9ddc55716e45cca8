"""A line is cut where it was asked for, and what the server did before stands."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal

import asyncpg
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.faults import DRIVER_ERRORS
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.errors import TransportError
from tests import given
from tests.proofs.chaos.proxy import Proxy, Trap
from tests.worker.facts import count

CREATE = "lifecycle.create_execution"


@pytest.fixture
async def proxy(ff_dsn: str) -> AsyncGenerator[Proxy]:
    async with Proxy.to(ff_dsn) as proxy:
        yield proxy


@pytest.fixture
async def engine(proxy: Proxy) -> AsyncGenerator[Engine]:
    engine = await Engine.connect(DatabaseConfig(dsn=proxy.dsn, pool_size=1))
    yield engine
    await engine.close()


@pytest.mark.parametrize(("when", "there"), [("before", 0), ("after", 1)])
@pytest.mark.parametrize("prepared", [False, True])
async def test_a_statement_is_cut_before_or_after_it_happened(
    proxy: Proxy,
    engine: Engine,
    db: Connection,
    when: Literal["before", "after"],
    there: int,
    prepared: bool,
) -> None:
    if prepared:
        await engine.create_execution([given.new()])
    proxy.set_trap(Trap(CREATE, when))

    with pytest.raises(TransportError):
        await engine.create_execution([given.new()])

    assert await count(db) == there + prepared
    assert proxy.sprung == {when: 1}


@pytest.mark.parametrize(
    ("trap", "there", "how"),
    [
        (Trap("commit", "before"), 0, "before"),
        (Trap("commit", "after"), 1, "after"),
        (Trap(CREATE, "after"), 0, "inside"),
    ],
)
async def test_a_transaction_is_cut_before_inside_or_after_its_commit(
    proxy: Proxy, engine: Engine, db: Connection, trap: Trap, there: int, how: str
) -> None:
    proxy.set_trap(trap)

    with pytest.raises(TransportError):
        await transact(engine.pool, "create", lambda conn: create_execution(conn, [given.new()]))

    assert await count(db) == there
    assert proxy.sprung == {how: 1}


async def test_a_trap_springs_once_and_only_for_its_statement(
    proxy: Proxy, engine: Engine, db: Connection
) -> None:
    proxy.set_trap(Trap("lifecycle.claim", "after"))
    await engine.create_execution([given.new()])

    with pytest.raises(TransportError):
        await engine.claim(given.WORKER, ttl=30)
    assert await count(db, "active") == 1

    assert await engine.claim(given.WORKER, ttl=30) == []


async def test_every_line_is_cut_at_once_and_new_ones_are_not(proxy: Proxy) -> None:
    conn = await asyncpg.connect(proxy.dsn)

    proxy.cut()

    with pytest.raises(DRIVER_ERRORS):
        await conn.fetchval("SELECT 1")
    another = await asyncpg.connect(proxy.dsn)
    assert await another.fetchval("SELECT 1") == 1
    await another.close()
