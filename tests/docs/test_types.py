"""The examples of README and guides, and the public names, hold under mypy's strict mode."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.conftest import Reader
from tests.docs.pages import ROOT, Block, blocks, name_of

PAGES = ["README.md", *sorted(name_of(page) for page in (ROOT / "docs/guides").glob("*.md"))]

GIVEN = {
    "changing-code-that-runs": ["handle: Handle[str]"],
    "debugging": ["execution_id: ExecutionId"],
    "events": ["nap: Task[[float], str]", "last: Handle[str]"],
    "flows": [
        "ask: Task[[str], str]",
        "accept: Task[[], str]",
        "visit: Task[[str], None]",
        "scan: Task[[], None]",
    ],
    "operating": ["execution_id: ExecutionId"],
    "retries-and-timeouts": ["app: App"],
}
"""What the short examples of a page use besides `client`, `dsn` and the files of the page."""

USUAL = """
import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.orm import Session

from flowfabric import *
"""


def python_blocks(page: str, role: str) -> list[Block]:
    return [each for each in blocks(page) if (each.language, each.role) == ("python", role)]


def short_examples(page: str) -> str:
    """The examples of a page that are no files, one after the other in one coroutine."""
    files = [each.name.removesuffix(".py") for each in python_blocks(page, "file")]
    imports = [f"from {name} import *" for name in files if name.isidentifier()]
    parts = [f"client = connected  # {each}\n{each.text}" for each in python_blocks(page, "test")]
    given = ", ".join(["connected: Client", "dsn: str", *GIVEN.get(Path(page).stem, [])])
    head = [USUAL, *imports, f"async def page({given}) -> None:"]
    return "\n".join([*head, textwrap.indent("\n".join(parts), "    ")])


def written(place: Path) -> None:
    """Write every example into one directory, where they find each other."""
    for page in PAGES:
        for each in python_blocks(page, "file"):
            file = place / each.name
            assert not file.exists(), f"{each}: another page has a file {each.name}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(each.text)
        if python_blocks(page, "test"):
            name = re.sub(r"\W", "_", Path(page).stem)
            (place / f"short_examples_of_{name}.py").write_text(short_examples(page))
    program = Path(__file__).with_name("typed_program.py")
    (place / program.name).write_text(program.read_text())


@pytest.mark.slow
@pytest.mark.timeout(300)  # the first time, mypy has no cache
async def test_mypy_accepts_every_example(reader: Reader) -> None:
    written(reader.place)

    said = await reader.run(
        sys.executable,
        *(
            "-m",
            "mypy",
            "--strict",
            "--allow-redefinition",
            "--no-error-summary",
            "--explicit-package-bases",
        ),
        *("--cache-dir", str(ROOT / ".mypy_cache"), "."),
    )

    assert said == ""
