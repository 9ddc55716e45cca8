"""What holds for every page: links lead somewhere, examples are run, no machine shows through."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.all_cases import all_cases
from tests.docs.pages import PAGES, ROOT, anchors, blocks, links, name_of, prose, text_of

NAMES = [name_of(page) for page in PAGES]
HERE = Path(__file__).parent
UNMARKED_SHELL = re.compile(r"^(make \w+|ff dev|export FF_DATABASE_URL=)", re.MULTILINE)

PUBLIC = {
    "flowfabric",
    "flowfabric.engine",
    "flowfabric.errors",
    "flowfabric.metrics",
    "flowfabric.policy",
    "flowfabric.dashboard",
    "flowfabric.states",
    "flowfabric.sync",
    "flowfabric.testing",
}
DEEPER = re.compile(
    r"flowfabric\.(?:app|cli|client|db|engine|reconcile|worker)\.\w+"
    r"|flowfabric\.(?:at_commit|config|counters|ids|instants|joins|stored_policy|wire)\b"
)
"""A module that programs do not import; `flowfabric.worker` is the name of a logger too."""


@all_cases("page", NAMES)
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, fragment = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if fragment:
            assert fragment in anchors(name_of(target)), f"{page}: {link}"


@all_cases("page", NAMES)
def test_every_page_can_be_reached(page: str) -> None:
    if page == "README.md":
        return
    linking = [
        other
        for other in NAMES
        for link in links(other)
        if not link.startswith("https://")
        and ((ROOT / other).parent / link.partition("#")[0]).resolve() == ROOT / page
    ]

    assert set(linking) - {page}


@all_cases("page", NAMES)
def test_every_example_is_a_file_or_is_run(page: str) -> None:
    for each in blocks(page):
        match each.language:
            case "python" | "sql" | "ini":
                assert each.role, f"{each} is not run"
            case "sh":
                assert each.role or UNMARKED_SHELL.match(each.text), f"{each} is not run"
            case "text":
                assert each.role == "output", f"{each} is not compared"
            case "yaml" | "dockerfile":
                assert each.role == "file", f"{each} is not read"
            case "mermaid":
                pass
            case _:
                pytest.fail(f"{each}: a block in {each.language!r}")


def test_every_example_that_is_marked_has_its_test() -> None:
    every = [each for page in NAMES for each in blocks(page)]
    marked = [each.name for each in every if each.role in ("test", "output")]
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py"))

    assert len(marked) == len(set(marked)), "two examples of one name"
    assert [name for name in marked if f'"{name}"' not in tests] == []


@all_cases("page", NAMES)
def test_examples_import_only_what_is_public(page: str) -> None:
    for each in blocks(page):
        if each.language == "python":
            assert _modules_imported(each.text) <= PUBLIC, each


@all_cases("page", [page for page in NAMES if page != "CONTRIBUTING.md"])
def test_pages_name_no_module_below_the_public_ones(page: str) -> None:
    assert DEEPER.findall(prose(page)) == []


def _modules_imported(text: str) -> set[str]:
    """The modules of this package that an example imports, in whatever way."""
    found: set[str] = set()
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for node in ast.walk(compile(text, "example", "exec", flags=flags)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] == "flowfabric"}


@all_cases("page", NAMES)
def test_python_examples_fit_the_line(page: str) -> None:
    for each in blocks(page):
        assert all(len(line) <= 100 for line in each.text.splitlines()), each


@all_cases("page", NAMES)
def test_no_page_shows_the_machine_it_was_written_on(page: str) -> None:
    assert re.search(r"(/tmp/|/home/|/root/|(?<!/v1)/work/|/Users/|C:\\)", text_of(page)) is None


@all_cases("page", NAMES)
def test_prose_is_wrapped(page: str) -> None:
    for line in prose(page).splitlines():
        assert len(line) <= 104 or line.startswith("|"), f"{page}: {line}"
