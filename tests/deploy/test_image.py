"""What the steps of the Containerfile make migrates, serves and runs tasks."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from tests.deploy.commands import DEPLOY, ROOT
from tests.deploy.image import Image
from tests.deploy.test_files import STEPS

TASKS = """
from flowfabric import App, Ctx

app = App()


@app.task("double")
async def double(ctx: Ctx, number: int) -> int:
    return number * 2
"""
TOKEN = "the-token-of-the-env-file"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image of a directory that is laid out as docs/operations.md says."""
    context = tmp_path_factory.mktemp("shop")
    for name in ("Containerfile", ".dockerignore", "compose.yaml"):
        (context / name).write_bytes((DEPLOY / name).read_bytes())
    (context / "tasks.py").write_text(TASKS)
    (context / ".env").write_text(f"FF_API_TOKEN={TOKEN}\n")
    wheel = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "wheels", str(ROOT))
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *wheel], cwd=context, check=True)
    made = Image(tmp_path_factory.mktemp("image"), context)
    made.build(STEPS)
    return made


def test_the_image_has_the_application_and_no_secret(image: Image) -> None:
    found = {path for path in image.root.rglob("*") if path.is_file()}

    assert image.root / "app/tasks.py" in found
    texts = [path for path in found if path.is_relative_to(image.root / "app")]
    assert not [path for path in texts if TOKEN.encode() in path.read_bytes()]


def test_the_image_runs_the_wheel_and_not_the_clone(image: Image) -> None:
    program = "import flowfabric; print(flowfabric.__file__)"
    told = subprocess.run(
        ["python", "-c", program], env=image.variables({}), check=True, capture_output=True
    ).stdout.decode()

    assert Path(told.strip()).is_relative_to(image.root / "opt/flowfabric")


@contextlib.asynccontextmanager
async def running(
    image: Image, dsn: str, *command: str, **more: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process of the image, which is told to stop at the end of the block, and does."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=image.directory,
        env=image.variables({"FF_DATABASE_URL": dsn, **more}),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_image_migrates_serves_and_runs_tasks(image: Image, ff_dsn: str) -> None:
    migrating = await asyncio.create_subprocess_exec(
        "ff", "migrate", cwd=image.directory, env=image.variables({"FF_DATABASE_URL": ff_dsn})
    )
    assert await migrating.wait() == 0
    worker = [*image.command]
    worker[worker.index("--metrics-port") + 1] = "0"
    listen = {"FF_LISTEN": "127.0.0.1:0", "FF_API_TOKEN": TOKEN}
    async with (
        running(image, ff_dsn, "ff", "server", **listen) as server,
        running(image, ff_dsn, *worker),
    ):
        assert server.stderr is not None
        url = None
        while url is None:
            line = (await server.stderr.readline()).decode()
            assert line, "the server did not start"
            url = re.search(r"serving at (http://[^\s\"]+)", line)
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=url[1], headers=headers, timeout=60) as client:
            body = {"execution_kind": "double", "input": {"number": 21}}
            made = await client.post("/v1/executions", json=body)
            assert made.status_code == 201, made.text
            told = await client.get(made.headers["location"] + "/outcome", params={"wait": 30})

    assert told.json()["result"] == 42, told.text
