"""Running `ff` as a user does: a real process in a directory of its own."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

APP = """
import os
from flowfabric import App, Ctx

app = App()
empty = App()
not_an_app = 7

@app.task("double")
async def double(ctx: Ctx, n: int) -> int:
    return n * 2

@app.task("pid")
async def pid(ctx: Ctx) -> int:
    return os.getpid()
"""


class Answer(msgspec.Struct, frozen=True):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """A directory, an environment, and `ff` in it."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory, self.environment = directory, environment

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "flowfabric.cli",
            *arguments,
            cwd=self.directory,
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def ff(self, *arguments: str) -> Answer:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        return Answer(process.returncode or 0, out.decode(), err.decode())


def _environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "FF_DATABASE_URL"}
    return {**kept, "COLUMNS": "200", "NO_COLOR": "1", **more}


@pytest.fixture
def directory() -> Generator[Path]:
    """A directory with an app in `shop.py`, which the user that runs Postgres can reach too."""
    with tempfile.TemporaryDirectory(prefix="flowfabric-cli-") as made:
        (Path(made) / "shop.py").write_text(APP)
        yield Path(made)


@pytest.fixture
def shell(directory: Path, ff_dsn: str) -> Shell:
    """With a migrated database."""
    return Shell(directory, _environment(FF_DATABASE_URL=ff_dsn))


@pytest.fixture
def bare(directory: Path) -> Shell:
    """Without a database."""
    return Shell(directory, _environment())
