"""The drawing of a flow as a file of its own: with its colours inside."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

_DASHBOARD: Final = Path(__file__).parent.parent
_ROOT: Final = re.compile(r":root \{(.*?)\n\}", re.DOTALL)
_DARK: Final = re.compile(r"light-dark\((#\w+), #\w+\)")
_LAYER: Final = re.compile(r"@layer pages \{(.*?)\n\}", re.DOTALL)
_LINKS: Final = re.compile(r' href="[^"]*"')


def standalone(svg: str) -> str:
    """The drawing without its links, with the light colours of the dashboard."""
    drawn = _LINKS.sub("", svg)
    begin = drawn.index(">") + 1
    head = drawn[:begin].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}{_inside()}{drawn[begin:]}"


@cache
def _inside() -> str:
    """The style, from the files of the dashboard."""
    colours = _ROOT.search((_DASHBOARD / "static/app.css").read_text())
    rules = _LAYER.search((_DASHBOARD / "static/graph.css").read_text())
    assert colours is not None
    assert rules is not None
    light = _DARK.sub(r"\1", colours[1]).replace("light dark", "light")
    style = f"svg{{{light}}}{rules[1]}"
    return f"<style>{style.replace('<', '')}</style>"
