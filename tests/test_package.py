"""The package as an index and an importing program see it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import flowfabric

ROOT = Path(__file__).resolve().parents[1]

MEASURED = """
import time
began = time.process_time()
{statement}
print(time.process_time() - began)
"""
HEAVY = ("asyncio", "asyncpg", "typer", "rich", "psycopg", "pydantic", "flowfabric.engine")

NOT_FOR_SUBMITS = (
    "flowfabric.engine.bulk",
    "flowfabric.engine.engine",
    "flowfabric.engine.lanes",
    "flowfabric.engine.operators.replay_flow",
    "flowfabric.engine.schedules.fire_schedules",
    "flowfabric.reconcile",
    "flowfabric.remote",
)


def test_the_long_description_is_the_readme_without_links_to_files() -> None:
    described = ProjectMetadata(str(ROOT), PluginManager()).core.readme

    assert described.startswith("# FlowFabric\n")
    assert "Concepts (`docs/concepts.md`)" in described
    assert re.findall(r"\]\((?!https://)[^)]*\)", described) == []


def test_an_import_loads_neither_the_driver_nor_the_engine() -> None:
    code = f"import flowfabric, sys; print([name for name in {HEAVY} if name in sys.modules])"

    assert _printed(code) == "[]"


def test_a_program_that_submits_loads_neither_sweeps_nor_operator_controls() -> None:
    code = f"""
import sys
from flowfabric import App, Client
print([name for name in {NOT_FOR_SUBMITS} if name in sys.modules])
"""

    assert _printed(code) == "[]"


def test_every_public_name_is_found_when_it_is_used() -> None:
    assert [getattr(flowfabric, name).__name__ for name in flowfabric.__all__] == [
        *flowfabric.__all__
    ]
    assert set(flowfabric.__all__) <= set(dir(flowfabric))
    with pytest.raises(AttributeError, match="has no attribute 'Missing'"):
        flowfabric.Missing  # noqa: B018  # pyright: ignore


@pytest.mark.timing
@pytest.mark.parametrize(
    ("statement", "most"),
    [("import flowfabric", 0.250), ("from flowfabric import App, Client", 0.500)],
)
def test_an_import_is_quick(statement: str, most: float, tmp_path: Path) -> None:
    # An installed package has its bytecode; PYTHONDONTWRITEBYTECODE of this run must not hide it.
    compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    code = MEASURED.format(statement=statement)
    _printed(code, **compiled)

    # The least of five: what else the machine does can only add to it. The slowest machines of CI
    # take twice as long as the others, so the bounds are twice what is wanted.
    assert min(float(_printed(code, **compiled)) for _ in range(5)) < most


def _printed(code: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
