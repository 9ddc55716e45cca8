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


class Builder(NamedTuple):
    """A module-level function that gives a part of a statement."""

    module: Module
    name: str
    tree: ast.FunctionDef

    @property
    def text(self) -> str:
        """The SQL that is written in it; what it is given, or calls, is called `given`."""
        return "\n".join(_written_in(statement) for statement in self.tree.body)


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


@cache
def builders() -> tuple[Builder, ...]:
    """Every function of the package that is declared to give constant SQL."""
    return tuple(
        Builder(module, node.name, node)
        for module in modules()
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef)
        and node.returns is not None
        and ast.unparse(node.returns) == "LiteralString"
    )


def _written_in(node: ast.AST) -> str:
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return ""
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue():
            return " given "
        case ast.JoinedStr(values=values):
            return "".join(map(_written_in, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _written_in(left) + _written_in(right)
        case ast.Call(args=args, keywords=keywords):
            texts = [*args, *(keyword.value for keyword in keywords)]
            return " given \n" + "\n".join(map(_written_in, texts))
        case ast.Name():
            return " given "
        case _:
            return "\n".join(map(_written_in, ast.iter_child_nodes(node)))


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression or a function mentions."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def statements() -> list[Constant]:
    return [constant for constant in constants() if constant.is_statement]


def bare(sql: str) -> str:
    """The statement without comments and quoted texts, on one line."""
    return " ".join(_QUOTED.sub("''", _COMMENT.sub("", sql)).split())


def written(sql: str) -> set[str]:
    """The tables that a statement writes, as it names them."""
    return {table.lower() for table in _WRITE.findall(bare(sql))}
