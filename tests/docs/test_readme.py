"""The README's example, the way its reader runs it: `ff dev`, then a second terminal."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.docs.conftest import Reader
from tests.docs.pages import block, text_of

README = "README.md"


@asynccontextmanager
async def ff_dev(reader: Reader, *arguments: str) -> AsyncGenerator[None]:
    """`ff dev` in the reader's directory, from its hint to Ctrl-C."""
    environment = reader.environment()
    del environment["FF_DATABASE_URL"]
    process = await asyncio.create_subprocess_exec(
        "ff",
        "dev",
        *arguments,
        cwd=reader.place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = b""
    try:
        async with asyncio.timeout(60):
            while b"Ctrl-C stops" not in said:
                line = await process.stdout.readline()
                assert line, said.decode()
                said += line
        yield
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = await process.communicate()
    assert process.returncode == 0, (said + rest).decode()


async def test_the_example_runs_beside_ff_dev(reader: Reader) -> None:
    reader.opens(README)

    async with ff_dev(reader, "tasks:app"):
        first = await reader.shell("readme-submit")
        second = await reader.shell("readme-submit")

    assert "charged 4200 for o-1" in first
    assert "charged 4200 for o-1" in second
    assert second.count("completed") == 1
    assert not (reader.place / ".flowfabric/database-url").exists()


def test_it_is_short() -> None:
    assert text_of(README).count("\n") < 120


def test_it_says_which_commands_there_are() -> None:
    assert "make run" in text_of(README)
    assert "make test" in text_of(README)
    assert "ff executions list" in block(README, "readme-submit").text
