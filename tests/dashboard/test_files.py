"""The files of the dashboard: small, of known origin, and without anything from elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import re
import tomllib
from pathlib import Path

from flowfabric.dashboard.assets import STATIC
from flowfabric.dashboard.render import MODULES, TEMPLATES

MAY_MAKE_SVG: frozenset[str] = frozenset({"flow.html", "flow_graph.html", "chart.html"})
"""Templates that show SVG which the server has made."""


def test_vendored_files_are_those_that_were_published() -> None:
    vendor = STATIC / "vendor"
    files = tomllib.loads((vendor / "VENDOR.toml").read_text())["file"]

    assert {each["path"] for each in files} == {
        each.name for each in vendor.iterdir() if each.name != "VENDOR.toml"
    }
    for each in files:
        digest = hashlib.sha256((vendor / each["path"]).read_bytes()).hexdigest()
        assert digest == each["sha256"], each["path"]


def test_scripts_are_short_and_make_no_markup_of_texts() -> None:
    for script in STATIC.glob("*.js"):
        text = script.read_text()
        assert len(text.splitlines()) <= 200, script.name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "new Function"):
            assert word not in text, (script.name, word)
        if script.name != "html.js":
            assert "DOMParser" not in text
            assert "createPolicy" not in text


def test_the_dashboard_weighs_little_and_loads_nothing_from_elsewhere() -> None:
    scripts = b"".join(each.read_bytes() for each in STATIC.rglob("*.js"))
    style = (STATIC / "app.css").read_bytes()
    assert len(gzip.compress(scripts)) < 40 * 1024
    assert len(style) < 32 * 1024
    assert len(gzip.compress(style)) < 8 * 1024
    own = [*STATIC.glob("*.js"), *STATIC.glob("*.css"), *TEMPLATES.rglob("*.html")]
    for each in own:
        found = re.findall(r"https?://[^\s\"')]+", each.read_text())
        assert [url for url in found if not url.startswith("http://www.w3.org/")] == [], each


def _templates() -> list[Path]:
    return sorted(TEMPLATES.rglob("*.html"))


def test_templates_escape_everything_and_have_no_inline_script_or_style() -> None:
    for each in _templates():
        text = each.read_text()
        if each.name not in MAY_MAKE_SVG:
            assert not re.search(r"\|\s*safe|autoescape", text), each.name
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style|javascript:", text), each.name
        for script in re.findall(r"<script[^>]*>", text):
            assert "asset(" in script, each.name


def test_pages_ask_at_once_for_every_module_that_they_import() -> None:
    found, left = set[str](), ["app.js"]
    while left:
        name = left.pop()
        for each in re.findall(r'^import .*"\./([^"]+)";$', (STATIC / name).read_text(), re.M):
            if each not in found:
                found.add(each)
                left.append(each)

    assert set(MODULES) == found
