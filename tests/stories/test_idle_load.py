"""A deployment that has nothing to do asks the database for little, by the server's own log."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.migrate import migrate
from flowfabric.db.pool import connect
from flowfabric.errors import ConfigError
from tests.stories.processes import serving, workers
from tests.worker.facts import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

FOR_SECONDS, PER_SECOND = 10, 2
STATEMENT = re.compile(r"LOG:  (?:statement:|execute [^:]+:)\s+(.*)")
NAMED = re.compile(r"LOG:  (?:statement:|execute [^:]+:)\s+-- ([\w.]+)")


@pytest.fixture
def talkative() -> Generator[tuple[str, Path]]:
    """A server of its own that writes every statement into its log; its DSN and the log."""
    with tempfile.TemporaryDirectory(prefix="flowfabric-idle-") as made:
        data = Path(made) / "postgres"
        try:
            server = EmbeddedPostgres.start(data, settings={"log_statement": "all"})
        except ConfigError as error:
            pytest.skip(f"needs the embedded Postgres: {error}")
        try:
            yield server.dsn, data / "log"
        finally:
            server.stop()


@pytest.mark.session("workers poll behind a pooler")
async def test_an_idle_worker_with_all_sweeps_issues_at_most_two_statements_a_second(
    talkative: tuple[str, Path],
) -> None:
    dsn, log = talkative
    await migrate(dsn)
    watcher = await connect(DatabaseConfig(dsn=dsn), role="tests")
    async with workers(dsn, "idle", concurrency=64):
        await serving(watcher, 1)
        await watcher.close()
        await eventually(lambda: log.read_text().count("reconcile.find_due") > 1, within=20)
        before, began = log.stat().st_size, time.monotonic()
        await asyncio.sleep(FOR_SECONDS)
        told = log.read_bytes()[before:].decode()
        seconds = time.monotonic() - began

    statements = STATEMENT.findall(told)
    by_name = Counter(NAMED.findall(told))
    rate = len(statements) / seconds
    assert rate <= PER_SECOND, by_name.most_common()
    assert by_name["reconcile.find_due"] >= FOR_SECONDS / 2, "the looks were not counted"
