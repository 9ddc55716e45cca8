"""A reader's directory: the files of a page, and the test's own database in the environment."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import flowfabric
from flowfabric import Client
from tests.docs.pages import Block, block, blocks


class Reader:
    """Somebody who follows one page: has its files, and runs its examples."""

    def __init__(self, place: Path, dsn: str) -> None:
        self.place, self.dsn = place, dsn
        self.page = ""

    def opens(self, page: str) -> None:
        """Write the files that the page shows, and go where they are."""
        self.page = page
        for each in blocks(page):
            if each.role == "file":
                file = self.place / each.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(each.text)

    async def shell(self, name: str, **variables: str) -> str:
        """Run the shell example `name`; what it prints. Fails if a command of it fails."""
        return await self.run("sh", "-eu", "-c", block(self.page, name).text, **variables)

    async def run(self, *command: str, **variables: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.place,
            env=self.environment() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ours = Path(flowfabric.__file__).parents[1]  # also where another tree is installed
        modules = f"{self.place}{os.pathsep}{ours}"
        plain = {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONPATH": modules}
        return {**os.environ, **plain, "PATH": path, "FF_DATABASE_URL": self.dsn}

    async def sql(self, name: str) -> list[asyncpg.Record]:
        """Run the SQL example `name` and commit; the rows it answers."""
        conn = await asyncpg.connect(self.dsn)
        try:
            text = block(self.page, name).text
            if ";" in text:
                await conn.execute(text)
                return []
            return await conn.fetch(text)
        finally:
            await conn.close()

    async def python(self, name: str, **names: Any) -> dict[str, Any]:
        """Run the Python example `name` with these names; all names afterwards."""
        await execute(block(self.page, name), names)
        return names


async def execute(example: Block, names: dict[str, Any]) -> None:
    """Run a block that may await at its top level."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(example.text, str(example), "exec", flags=flags)
    names.setdefault("__name__", "example")
    result = eval(code, names)  # noqa: S307  our own pages
    if inspect.isawaitable(result):
        await result


@pytest.fixture
def place() -> Generator[Path]:
    """An empty directory that also a Postgres which runs as another user can reach."""
    with tempfile.TemporaryDirectory(prefix="ff-reader-") as directory:
        made = Path(directory).resolve()
        made.chmod(0o755)
        yield made


@pytest.fixture
def reader(place: Path, ff_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Generator[Reader]:
    """In an empty directory, with the database of this test; modules of the page are forgotten."""
    known = set(sys.modules)
    monkeypatch.setenv("FF_DATABASE_URL", ff_dsn)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    try:
        yield Reader(place, ff_dsn)
    finally:
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).is_relative_to(place):
                del sys.modules[name]


@pytest.fixture
async def client(ff_dsn: str) -> AsyncGenerator[Client]:
    async with await Client.connect(ff_dsn) as connected:
        yield connected
