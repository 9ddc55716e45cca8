"""One database for a test process, not for each test: emptied after each, its clock restored."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.testing import TestServer

EMPTY = """
DO $$
DECLARE
    filled text;
BEGIN
    FOR filled IN SELECT tablename FROM pg_tables
                   WHERE schemaname = 'ff' AND tablename <> 'migration_annotation' LOOP
        EXECUTE format('DELETE FROM ff.%I', filled);
    END LOOP;
END
$$;
DROP SCHEMA IF EXISTS ff_testing CASCADE;
"""


class Kept(msgspec.Struct, frozen=True):
    """The database of this process, and its clock as the migrations made it."""

    dsn: str
    now_ms: str


@pytest.fixture(scope="session")
def kept(ff_server: TestServer) -> Generator[Kept]:
    """A migrated database that the tests of this process use one after the other."""

    async def create() -> Kept:
        dsn = await ff_server.create()
        conn = await connect(DatabaseConfig(dsn=dsn), role="tests")
        try:
            clock = await conn.fetchval("SELECT pg_get_functiondef('ff.now_ms()'::regprocedure)")
        finally:
            await conn.close()
        return Kept(dsn, clock)

    with ThreadPoolExecutor(1) as elsewhere:  # away from the loop of the test that asks first
        made = elsewhere.submit(asyncio.run, create()).result()
        try:
            yield made
        finally:
            elsewhere.submit(asyncio.run, ff_server.drop(made.dsn)).result()


@pytest.fixture
async def ff_dsn(kept: Kept) -> AsyncGenerator[str]:
    """A database without a row, running on real time; whatever a test leaves in it is removed."""
    try:
        yield kept.dsn
    finally:
        conn = await connect(DatabaseConfig(dsn=kept.dsn), role="tests")
        try:
            await conn.execute(EMPTY + kept.now_ms)
        finally:
            await conn.close()
