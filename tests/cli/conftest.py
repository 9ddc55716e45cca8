"""Running `ff` as a user does: a real process in a directory of its own.

Where the process itself is not the point, `ff` runs within this one, which takes a tenth of the
time: in a thread, so that its event loop and that of the test do not meet.
"""

import asyncio
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from flowfabric.cli import main

APP = """
import asyncio
import logging
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

@app.task("nap")
async def nap(ctx: Ctx) -> None:
    await asyncio.sleep(60)

@app.task("broken")
async def broken(ctx: Ctx) -> None:
    logging.getLogger(__name__).info("looking for %s", "x")
    raise KeyError("x")
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
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def ff(self, *arguments: str) -> Answer:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        return Answer(process.returncode or 0, out.decode(), err.decode())


class Inside:
    """`ff` within this process: what is given to `main()`, and what comes out of it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    async def __call__(self, *arguments: str, **environment: str) -> Answer:
        return await asyncio.to_thread(self._run, arguments, self.environment | environment)

    def _run(self, arguments: tuple[str, ...], environment: dict[str, str]) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch.multiple(
                sys, argv=["ff", *arguments], stdin=io.StringIO(), excepthook=sys.excepthook
            ),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return Answer(code, out.getvalue(), err.getvalue())


def one_line(answer: Answer, code: int = 1) -> str:
    """The complaint of a command that failed: one line, and nothing on standard output."""
    assert answer.code == code, answer
    assert answer.out == ""
    [line] = answer.err.splitlines()
    assert line.startswith("ff: ")
    return line


def usage_error(answer: Answer) -> str:
    """What is said about a command line that cannot be read: exit code 2, the usage, the reason."""
    assert answer.code == 2, answer
    assert answer.out == ""
    assert "Usage: ff" in answer.err
    return answer.err


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
def ff(ff_dsn: str) -> Inside:
    """With a migrated database, within this process."""
    return Inside(_environment(FF_DATABASE_URL=ff_dsn))


@pytest.fixture
def ff_alone() -> Inside:
    """Without a database, within this process: for what is refused before one is asked."""
    return Inside(_environment())


@pytest.fixture
def bare(directory: Path) -> Shell:
    """Without a database."""
    return Shell(directory, _environment())
