"""The package as it is written: its modules, their syntax trees and their SQL."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import flowfabric

ROOT = Path(flowfabric.__file__).parent
NAMED = re.compile(r"-- ([a-z_]+)\.([a-z_]+)(: \S.*)?")
_COMMENT = re.compile(r"--[^\n]*")
_QUOTED = re.compile(r"'(?:[^']|'')*'")
_WRITE = re.compile(
    r"(?<!FOR )(?<!KEY )(?<!DO )(?<!ON )"
    r"\b(?:INSERT INTO|UPDATE|DELETE FROM|MERGE INTO|TRUNCATE(?: TABLE)?|COPY)"
    r" (?:ONLY )?([a-z_][a-z0-9_.]*)",
    re.IGNORECASE,
)


class Module(NamedTuple):
    """One source file."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        """`lifecycle` of `flowfabric.engine.lifecycle.claim`, `db` of `flowfabric.db.rows`."""
        _, *inner = self.name.split(".")
        return next((part for part in inner if part != "engine"), "")

    @property
    def is_vocabulary(self) -> bool:
        return self.name.count(".") <= 1 and self.path.name != "__init__.py"


class Constant(NamedTuple):
    """A module-level text."""

    module: Module
    name: str
    text: str
    is_literal: bool
    """Is it declared `Final[LiteralString]`?"""

    @property
    def is_statement(self) -> bool:
        return NAMED.match(self.text.strip()) is not None


@cache
def modules() -> tuple[Module, ...]:
    found: list[Module] = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        found.append(Module(name, path, ast.parse(path.read_text(encoding="utf-8"))))
    return tuple(found)


@cache
def constants() -> tuple[Constant, ...]:
    """Every module-level text of the package, as Python sees it once it is imported."""
    return tuple(_constants())


def _constants() -> Iterator[Constant]:
    for module in modules():
        if module.name.endswith("__main__"):
            continue
        for node in module.tree.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    literal = ast.unparse(annotation) == "Final[LiteralString]"
                case ast.Assign(targets=[ast.Name(id=name)]):
                    literal = False
                case _:
                    continue
            value = getattr(importlib.import_module(module.name), name)
            if isinstance(value, str):
                yield Constant(module, name, value, literal)


def statements() -> list[Constant]:
    return [constant for constant in constants() if constant.is_statement]


def bare(sql: str) -> str:
    """The statement without comments and quoted texts, on one line."""
    return " ".join(_QUOTED.sub("''", _COMMENT.sub("", sql)).split())


def written(sql: str) -> set[str]:
    """The tables that a statement writes, as it names them."""
    return {table.lower() for table in _WRITE.findall(bare(sql))}
