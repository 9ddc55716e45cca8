"""The written pages as tests see them: blocks, tables, headings and links.

A fenced block may be marked by the comment above it. `<!-- file: NAME -->` is a file of the
reader's directory, `<!-- test: NAME -->` is run by the test that asks for it by that name,
`<!-- output: NAME -->` is what such a test compares with what was printed, and
`<!-- before: NAME -->` is code for another system, which is not installed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)

_BLOCK: Final = re.compile(
    r"(?:<!-- (?P<role>file|test|output|before): (?P<name>\S+) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_LINK: Final = re.compile(r"(?<!\!)\[[^\]]+\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^(#+) (.+)$", re.MULTILINE)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One fenced block; `role` is `file`, `test`, `output`, `before` or empty."""

    page: str
    line: int
    language: str
    role: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page, in order."""
    text = text_of(page)
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start("text")),
            language=found["language"],
            role=found["role"] or "",
            name=found["name"] or "",
            text=found["text"],
        )
        for found in _BLOCK.finditer(text)
    ]


def block(page: str, name: str, role: str = "test") -> Block:
    """The block of a page that is marked as the test `name`, or in another role."""
    [found] = [each for each in blocks(page) if (each.role, each.name) == (role, name)]
    return found


def prose(page: str) -> str:
    """The page without its fenced blocks."""
    return _BLOCK.sub("", text_of(page))


def links(page: str) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: str) -> set[str]:
    """The fragments that links to this page may have."""
    headings = [title for _, title in _HEADING.findall(prose(page))]
    return {"-".join(re.sub(r"[^\w\- ]", "", heading.lower()).split(" ")) for heading in headings}


def sections(page: str, depth: int) -> dict[str, str]:
    """What stands under each heading of that depth, up to the next heading of any depth."""
    parts = _HEADING.split(prose(page))[1:]
    found = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return {title: body for marks, title, body in found if len(marks) == depth}


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every table row but the headings; escaped bars stay in their cell."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith("|") and not line.startswith("|---") and not following.startswith("|--"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def quoted(cell: str) -> list[str]:
    """Everything in a cell that stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)
