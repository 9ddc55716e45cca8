"""The guides for other frameworks and systems: their examples run as the pages say."""

from __future__ import annotations

import asyncio
import importlib
import signal
from types import ModuleType
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx
import pytest
import yaml
from sqlalchemy import create_engine, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from flowfabric import Client, Handle, sync
from tests.docs.conftest import Reader
from tests.docs.pages import ROOT, block, blocks
from tests.worker.facts import eventually


def opened(reader: Reader, page: str, module: str) -> ModuleType:
    reader.opens(f"docs/guides/{page}.md")
    return importlib.import_module(module)


# FastAPI.


async def test_a_route_submits_and_another_shows_the_result(reader: Reader) -> None:
    web = opened(reader, "fastapi", "web")

    async with web.lifespan(web.api), browser(web.api) as get_and_post:
        first = await get_and_post.post("/reports", params={"month": "May"})
        again = await get_and_post.post("/reports", params={"month": "May"})
        place = f"/reports/{quote(first.json()['execution_id'])}"
        before = (await get_and_post.get(place)).json()
        await reader.shell("fastapi-worker")
        after = (await get_and_post.get(place)).json()
        missing = await get_and_post.get("/reports/nonsense")

    assert (first.status_code, first.json()) == (202, again.json())
    assert (before["state"], before["report"]) == ("waiting", None)
    assert (after["state"], after["progress"]) == ("completed", "adding up")
    assert after["report"] == {"month": "May", "total": "4200.00"}
    assert (missing.status_code, missing.json()) == (404, {"detail": "no such report"})


def browser(api: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="http://shop")


# Django.

SETTINGS = """
import os
from urllib.parse import parse_qs, urlsplit

address = urlsplit(os.environ["FF_DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": address.path.strip("/"),
        "USER": address.username,
        "HOST": address.hostname or parse_qs(address.query)["host"][0],
        "PORT": address.port or "",
        "PASSWORD": address.password or "",
    }
}
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "members"]
SECRET_KEY = "a test"
USE_TZ = True
"""

MANAGE = """
import os, sys
from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
execute_from_command_line(sys.argv)
"""

ROLLED_BACK = """
from django.contrib.auth.models import User
from django.db import transaction
from members.signup import sign_up

try:
    with transaction.atomic():
        sign_up("bob@example.org")
        raise RuntimeError
except RuntimeError:
    print(User.objects.filter(email="bob@example.org").count())
"""


async def test_a_user_and_a_task_are_one_transaction_of_django(
    reader: Reader, client: Client
) -> None:
    reader.opens("docs/guides/django.md")
    (reader.place / "settings.py").write_text(SETTINGS)
    (reader.place / "manage.py").write_text(MANAGE)

    said = await reader.shell("django-worker")
    lost = await reader.run("python", "manage.py", "shell", "--command", ROLLED_BACK)

    [found] = (await client.search(kind="welcome")).executions
    assert str(found.execution_id) in said
    assert await client.handle(found.execution_id).result(timeout=5) == "welcomed ann@example.org"
    assert lost.strip().endswith("0")


# SQLAlchemy.


async def welcomed(reader: Reader) -> list[tuple[str, bool]]:
    conn = await asyncpg.connect(reader.dsn)
    try:
        return [tuple(row) for row in await conn.fetch("SELECT email, welcomed FROM accounts")]
    finally:
        await conn.close()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_an_async_session_submits_in_its_transaction(
    reader: Reader, client: Client, driver: str
) -> None:
    accounts = opened(reader, "sqlalchemy", "accounts")
    example = await reader.python("sqlalchemy-async")
    engine = create_async_engine(accounts.url(driver))
    async with engine.begin() as connection:
        await connection.run_sync(accounts.Base.metadata.create_all)

    async with AsyncSession(engine) as session:
        handle = await example["sign_up"](session, client, "ann@example.org")
    await accounts.app.worker().run_until_idle()
    await engine.dispose()

    assert await handle.result(timeout=5) == "welcomed ann@example.org"
    assert await welcomed(reader) == [("ann@example.org", True)]


async def test_a_blocking_session_submits_in_its_transaction_or_not_at_all(
    reader: Reader, client: Client
) -> None:
    accounts = opened(reader, "sqlalchemy", "accounts")
    example = await reader.python("sqlalchemy-blocking")
    engine = create_engine(accounts.url("psycopg"))

    def signed_up() -> str:
        accounts.Base.metadata.create_all(engine)
        with sync.Client.connect() as blocking, Session(engine) as session:
            handle = example["sign_up_blocking"](session, blocking, "bob@example.org")
            session.add(accounts.Account(email="cem@example.org"))
            blocking.submit(accounts.welcome.call(0), conn=session.connection())
            session.rollback()
            assert session.scalars(select(accounts.Account.email)).all() == ["bob@example.org"]
        engine.dispose()
        return str(handle.execution_id)

    execution_id = await asyncio.to_thread(signed_up)
    await accounts.app.worker().run_until_idle()

    [found] = (await client.search(kind="welcome")).executions
    assert str(found.execution_id) == execution_id
    assert await welcomed(reader) == [("bob@example.org", True)]


# Docker.

SLEEPING = """
import asyncio
from flowfabric import App, Ctx

app = App()


@app.task("slow")
async def slow(ctx: Ctx, seconds: float) -> str:
    await ctx.progress(1, "begun")
    await asyncio.sleep(seconds)
    return "finished"
"""


@pytest.fixture
def compose(reader: Reader) -> dict[str, Any]:
    reader.opens("docs/guides/docker.md")
    (reader.place / "tasks.py").write_text(SLEEPING)
    return yaml.safe_load((reader.place / "compose.yaml").read_text())


async def test_the_commands_of_the_compose_file_migrate_and_drain(
    reader: Reader, client: Client, compose: dict[str, Any]
) -> None:
    tasks = importlib.import_module("tasks")
    migrate, worker = compose["services"]["migrate"], compose["services"]["worker"]
    handle = await client.submit(tasks.slow.call(1.0))

    await reader.run(*migrate["command"])
    process = await asyncio.create_subprocess_exec(
        *worker["command"], cwd=reader.place, env=reader.environment()
    )
    try:
        await eventually(lambda: begun(handle), within=60)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert await handle.result(timeout=1) == "finished"
    assert len(await handle.attempts()) == 1


async def begun(handle: Handle[str]) -> bool:
    return (await handle.describe()).progress_message == "begun"


def test_docker_waits_longer_than_the_worker_drains(compose: dict[str, Any]) -> None:
    worker = compose["services"]["worker"]
    drain = float(worker["command"][worker["command"].index("--drain") + 1])

    assert float(worker["stop_grace_period"].removesuffix("s")) > drain
    assert worker["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert worker["environment"] == compose["services"]["migrate"]["environment"]


def test_the_image_runs_the_command_of_the_compose_file(compose: dict[str, Any]) -> None:
    dockerfile = block("docs/guides/docker.md", "Dockerfile", "file").text
    command = yaml.safe_load(dockerfile.split("CMD ")[1])

    assert compose["services"]["worker"]["command"][: len(command)] == command


async def test_the_wheel_that_the_image_installs_is_built(
    reader: Reader, compose: dict[str, Any]
) -> None:
    # The build tool of this environment, instead of a fresh one for each build.
    await reader.shell("docker-wheel", CLONE=str(ROOT), PIP_NO_BUILD_ISOLATION="0")

    [wheel] = (reader.place / "wheels").iterdir()
    assert wheel.name.startswith("flowfabric-")


# Coming from other systems.


@pytest.mark.parametrize(
    ("page", "module", "told"),
    [
        ("from-celery", "ordering", "receipt: charged 4200 for o-1"),
        ("from-dbos", "fulfilment", "charged 4200 for o-1, shipped o-1"),
        ("from-hatchet", "charging", "charged 4200 for o-1, shipped"),
        ("from-temporal", "packing", "charged 4200 for o-1, packed on shelf 7"),
    ],
)
async def test_the_code_after_the_move_runs(
    reader: Reader, client: Client, page: str, module: str, told: str
) -> None:
    moved = opened(reader, page, module)

    def placed() -> str:
        with sync.Client.connect() as blocking:
            return moved.place_order(blocking, "o-1", 4200)

    async with moved.app.worker():
        assert await asyncio.to_thread(placed) == told
        assert await asyncio.to_thread(placed) == told


@pytest.mark.parametrize("page", ["from-celery", "from-dbos", "from-hatchet", "from-temporal"])
def test_the_code_before_the_move_is_python(page: str) -> None:
    [before] = [each for each in blocks(f"docs/guides/{page}.md") if each.role == "before"]

    compile(before.text, str(before), "exec")
