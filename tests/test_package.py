"""The package as an index and an importing program see it."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).resolve().parents[1]

IMPORT = """
import time
began = time.process_time()
import flowfabric
print(time.process_time() - began)
"""
HEAVY = ("typer", "rich", "click", "psycopg", "sqlalchemy", "pydantic", "uvloop", "pytest")


def test_the_long_description_is_the_readme_without_links_to_files() -> None:
    described = ProjectMetadata(str(ROOT), PluginManager()).core.readme

    assert described.startswith("# FlowFabric\n")
    assert "Concepts (`docs/concepts.md`)" in described
    assert re.findall(r"\]\((?!https://)[^)]*\)", described) == []


def test_an_import_loads_no_library_of_the_command_line_or_of_other_drivers() -> None:
    code = f"import flowfabric, sys; print([name for name in {HEAVY} if name in sys.modules])"

    assert _printed(code) == "[]"


@pytest.mark.timing
def test_an_import_takes_less_than_150_ms(tmp_path: Path) -> None:
    # An installed package has its bytecode; PYTHONDONTWRITEBYTECODE of this run must not hide it.
    compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    _printed(IMPORT, **compiled)

    seconds = statistics.median([float(_printed(IMPORT, **compiled)) for _ in range(5)])

    assert seconds < 0.150


def _printed(code: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
