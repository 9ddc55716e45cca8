"""Where a fault is planted: a folder, a function or a statement, and the words in it.

Words are compared one by one, so that line breaks, indentation, comments and moves from one file
to another make no difference. `$name` stands for any one name or number, the same each time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

PACKAGE: Final = Path("src/flowfabric")
_TOKEN: Final = re.compile(
    r"(?P<skipped>\s+|--[^\n]*|\#(?=\s)[^\n]*)|\$?[A-Za-z_]\w*|\d+(?:\.\d+)?|\S"
)


class Token(msgspec.Struct, frozen=True):
    """One word, number or sign, and where it stands in its text."""

    text: str
    start: int
    end: int

    @property
    def is_variable(self) -> bool:
        return len(self.text) > 1 and self.text.startswith("$")


class Match(msgspec.Struct, frozen=True):
    """A run of tokens that fits, and what its variables stand for."""

    start: int
    end: int
    variables: dict[str, str]


class Span(msgspec.Struct, frozen=True):
    """A part of a file."""

    path: Path
    start: int
    end: int


class Place(msgspec.Struct, frozen=True):
    """All files under `folder`; only the function or the statement of a name, if one is given."""

    folder: str = ""
    function: str = ""
    """`claim`, or `Renewer.start` for a method."""
    statement: str = ""
    """The operation in the first line of the SQL: `claim` for `-- lifecycle.claim`."""

    def __str__(self) -> str:
        return self.function or self.statement or self.folder

    def spans(self, tree: Path) -> Iterator[Span]:
        """Every part of the package in this tree that is meant."""
        root = tree / PACKAGE
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.sql")]):
            inside = path.relative_to(root).as_posix()
            if not f"{inside}/".startswith(f"{self.folder}/" if self.folder else ""):
                continue
            text = path.read_text(encoding="utf-8")
            if not (self.function or self.statement):
                yield Span(path, 0, len(text))
            elif path.suffix == ".py":
                for node in self._nodes(text):
                    yield Span(path, *_extent(text, node))

    def _nodes(self, text: str) -> Iterator[ast.stmt]:
        if self.function:
            name = self.function.rpartition(".")[2]
            if f"def {name}(" in text:
                yield from _functions(ast.parse(text), self.function)
        else:
            named = re.compile(rf"^-- [a-z_]+\.{self.statement}$", re.MULTILINE)
            if named.search(text):
                for node in ast.parse(text).body:
                    start, end = _extent(text, node)
                    if isinstance(node, ast.AnnAssign) and named.search(text[start:end]):
                        yield node


def tokens(text: str) -> list[Token]:
    """The words of SQL or Python, without comments; quotes are signs of their own."""
    return [
        Token(found[0], found.start(), found.end())
        for found in _TOKEN.finditer(text)
        if found["skipped"] is None
    ]


def matches(text: str, pattern: str) -> Iterator[Match]:
    """Where the words of `pattern` stand in `text`."""
    words, wanted = tokens(text), tokens(pattern)
    for first in range(len(words) - len(wanted) + 1):
        variables: dict[str, str] = {}
        run = words[first : first + len(wanted)]
        if all(_fits(word, want, variables) for word, want in zip(run, wanted, strict=True)):
            yield Match(run[0].start, run[-1].end, variables)


def filled(text: str, variables: dict[str, str]) -> str:
    """`text` with what its variables stand for."""
    return re.sub(r"\$([A-Za-z_]\w*)", lambda found: variables[f"${found[1]}"], text)


def _fits(word: Token, want: Token, variables: dict[str, str]) -> bool:
    if not want.is_variable:
        return word.text == want.text
    if not re.match(r"\w", word.text):
        return False
    return variables.setdefault(want.text, word.text) == word.text


def _functions(tree: ast.Module, name: str) -> Iterator[ast.stmt]:
    holder, _, bare = name.rpartition(".")
    for scope in ast.walk(tree):
        if isinstance(scope, ast.Module if not holder else ast.ClassDef):
            if isinstance(scope, ast.ClassDef) and scope.name != holder:
                continue
            for node in scope.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == bare:
                    yield node


def _extent(text: str, node: ast.stmt) -> tuple[int, int]:
    """Whole lines: columns of syntax trees count bytes."""
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1]))
    return start, start + sum(map(len, lines[node.lineno - 1 : node.end_lineno]))
