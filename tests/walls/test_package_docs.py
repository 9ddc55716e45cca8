"""The docstring of each engine package names its modules, and only modules that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.all_cases import all_cases
from tests.walls.sources import ROOT

ENGINE = ROOT / "engine"
LISTED = re.compile(r"^ *([a-z_]+) {2,}\S", re.MULTILINE)
PACKAGES = sorted(
    path.parent.relative_to(ENGINE).as_posix() for path in ENGINE.glob("*/**/__init__.py")
)


def docstring(package: Path) -> str:
    written = ast.get_docstring(ast.parse((package / "__init__.py").read_text()), clean=False)
    assert written is not None
    return written


def inside(package: Path) -> set[str]:
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def test_there_are_packages_to_look_at() -> None:
    assert {"lifecycle", "lifecycle/sql", "flows", "joins", "grants", "operators"} <= set(PACKAGES)


@all_cases("package", PACKAGES)
def test_the_docstring_lists_every_module_once_and_nothing_else(package: str) -> None:
    listed = LISTED.findall(docstring(ENGINE / package))

    assert sorted(listed) == sorted(inside(ENGINE / package))


@all_cases("package", PACKAGES)
def test_the_docstring_begins_with_one_sentence_and_its_lines_are_aligned(package: str) -> None:
    written = docstring(ENGINE / package)
    columns = {len(found[0]) - 1 for found in LISTED.finditer(written)}

    assert re.match(r"[A-Z][^\n]*\.\n\n", written)
    assert len(columns) == 1
