"""What a process checks before it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from flowfabric.config import DatabaseConfig, PartitionConfig
from flowfabric.db import boot
from flowfabric.db.migrate import Applied, needed_version
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.errors import Unavailable
from tests.db.facts import blocked

Another = Callable[[], Awaitable[Connection]]
ANNOTATE = "INSERT INTO ff.migration_annotation VALUES ($1, $2, 0, $3, '')"
STORED = (
    "SELECT num_flow_partitions, num_budget_partitions, num_quota_partitions"
    " FROM ff.partition_config"
)


@pytest.fixture
async def undone(db: Connection) -> AsyncGenerator[Connection]:
    """A connection whose changes are rolled back after the test."""
    transaction = db.transaction()
    await transaction.start()
    try:
        yield db
    finally:
        await transaction.rollback()


# The schema's version.


async def test_a_database_without_the_schema_is_refused(empty_dsn: str) -> None:
    conn = await connect(DatabaseConfig(dsn=empty_dsn), role="tests")

    with pytest.raises(Unavailable, match="run: ff migrate") as error:
        await boot.check(conn, PartitionConfig())

    assert error.value.operation == "schema_version"
    await conn.close()


async def test_an_older_schema_is_refused_with_both_versions(
    undone: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = needed_version()
    monkeypatch.setattr(boot, "needed_version", lambda: stored + 1)

    with pytest.raises(Unavailable, match=f"at version {stored}, this code needs {stored + 1}"):
        await boot.check(undone, PartitionConfig())


async def test_the_schema_this_code_is_written_for_is_accepted_silently(
    undone: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="flowfabric.boot"):
        await boot.check(undone, PartitionConfig())

    assert caplog.records == []


async def test_a_newer_compatible_schema_is_accepted_with_a_warning(
    undone: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    newer = needed_version() + 2
    await undone.execute(ANNOTATE, newer - 1, "adds_a_table", True)
    await undone.execute(ANNOTATE, newer, "adds_an_index", True)

    await boot.check(undone, PartitionConfig())

    [warning] = caplog.records
    assert (warning.name, warning.levelname) == ("flowfabric.boot", "WARNING")
    assert f"at version {newer}, newer than this code's {newer - 2}" in warning.getMessage()


@pytest.mark.parametrize("then_compatible", [False, True])
async def test_a_newer_incompatible_schema_is_refused_by_the_migrations_name(
    undone: Connection, then_compatible: bool
) -> None:
    newer = needed_version() + 1
    await undone.execute(ANNOTATE, newer, "drops_a_column", False)
    if then_compatible:
        await undone.execute(ANNOTATE, newer + 1, "adds_a_table", True)

    with pytest.raises(Unavailable, match=f"{newer:04d}_drops_a_column.*not backward compatible"):
        await boot.check(undone, PartitionConfig())


def test_an_old_migration_need_not_be_compatible() -> None:
    ledger = [Applied(1, "one", False, ""), Applied(2, "two", False, "")]

    boot.check_version(ledger, 2)


# The partition counts.

FORGET = "DELETE FROM ff.partition_config"


async def test_migrations_have_stored_the_counts(db: Connection) -> None:
    assert [tuple(row) for row in await db.fetch(STORED)] == [(256, 32, 32)]


async def test_the_first_process_stores_its_counts_if_there_are_none(undone: Connection) -> None:
    await undone.execute(FORGET)
    ours = PartitionConfig(num_flow_partitions=64, num_budget_partitions=8, num_quota_partitions=4)

    await boot.check(undone, ours)
    await boot.check(undone, ours)

    assert [tuple(row) for row in await undone.fetch(STORED)] == [(64, 8, 4)]


@pytest.mark.parametrize(
    "field", ["num_flow_partitions", "num_budget_partitions", "num_quota_partitions"]
)
async def test_other_counts_than_the_stored_ones_are_refused_by_name(
    undone: Connection, field: str
) -> None:
    await boot.check(undone, PartitionConfig())
    stored = getattr(PartitionConfig(), field)

    with pytest.raises(Unavailable, match=f"{field} is 7 here but {stored}") as error:
        await boot.check(undone, PartitionConfig(**{field: 7}))

    assert error.value.operation == "partition_config"
    assert [tuple(row) for row in await undone.fetch(STORED)] == [(256, 32, 32)]


async def test_processes_that_boot_at_the_same_time_agree(db: Connection, another: Another) -> None:
    await db.execute(FORGET)
    first, second = await another(), await another()
    async with first.transaction():
        await boot.check(first, PartitionConfig())
        checking = await blocked(db, second, boot.check(second, PartitionConfig()))
    await checking

    assert [tuple(row) for row in await db.fetch(STORED)] == [(256, 32, 32)]


async def test_a_process_that_comes_second_with_other_counts_is_refused(
    db: Connection, another: Another
) -> None:
    await db.execute(FORGET)
    first, second = await another(), await another()
    async with first.transaction():
        await boot.check(first, PartitionConfig())
        checking = await blocked(
            db, second, boot.check(second, PartitionConfig(num_flow_partitions=64))
        )

    with pytest.raises(Unavailable, match="num_flow_partitions is 64 here but 256"):
        await checking


async def test_an_engine_does_not_start_on_a_database_it_cannot_work_on(
    ff_dsn: str, db: Connection
) -> None:
    await boot.check(db, PartitionConfig())
    config = DatabaseConfig(dsn=ff_dsn, partitions=PartitionConfig(num_flow_partitions=64))

    with pytest.raises(Unavailable, match="num_flow_partitions"):
        await Engine.connect(config, role="refused")

    async with asyncio.timeout(10):
        while await db.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'flowfabric refused'"
        ):
            pass
