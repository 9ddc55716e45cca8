"""The pages for contributors: packages, imports and files are as these pages say."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.docs.pages import ROOT, blocks, prose, quoted

CONTRIBUTING = "CONTRIBUTING.md"
SOURCE = ROOT / "src/flowfabric"
PATH = re.compile(r"[\w/]+(?:/|\.(?:py|sql|toml))")
ARROW = re.compile(r"^ *(\w+) --> (.+)$", re.MULTILINE)
VOCABULARY = {"conditions", "errors", "states"}


def drawn() -> list[tuple[str, str]]:
    """(importer, imported) for each arrow of the map."""
    [chart] = [each for each in blocks(CONTRIBUTING) if each.language == "mermaid"]
    return [
        (importer, imported)
        for importer, targets in ARROW.findall(chart.text)
        for imported in targets.split(" & ")
    ]


def layers() -> dict[str, int]:
    """The number of the layer, from the outermost, of each name on the map."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        [contract] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    numbers: dict[str, int] = {}
    for number, layer in enumerate(contract["layers"]):
        for module in layer.split(" | "):
            name = module.removeprefix("flowfabric.").removeprefix("engine.")
            numbers.setdefault(name, number)  # `joins` is a package of the engine first
    numbers["Engine"] = numbers.pop("engine")
    numbers["engine"] = numbers["Engine"]
    numbers["vocabulary"] = numbers["states"]
    return numbers


def test_the_map_has_every_package() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")} - VOCABULARY
    of_the_engine = {path.parent.name for path in SOURCE.glob("engine/*/__init__.py")}
    named = {name for arrow in drawn() for name in arrow}

    assert named == packages | of_the_engine | {"sync", "Engine", "vocabulary"}


def test_every_arrow_of_the_map_goes_inwards() -> None:
    numbers = layers()

    for importer, imported in drawn():
        assert numbers[importer] < numbers[imported], f"{importer} --> {imported}"


@pytest.mark.parametrize("page", [CONTRIBUTING, "docs/design.md"])
def test_every_file_that_is_named_is_there(page: str) -> None:
    named = [path for path in quoted(prose(page)) if PATH.fullmatch(path)]

    assert len(named) > 20
    places = (ROOT, SOURCE, SOURCE / "engine", SOURCE / "engine/lifecycle/sql")
    for path in named:
        assert any((place / path).exists() for place in places), path
