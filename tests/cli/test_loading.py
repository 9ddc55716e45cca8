"""An error in the user's module is shown where the user made it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from flowfabric.cli.loading import load_app
from flowfabric.errors import ConfigError

Write = Callable[[str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the current directory, and gives its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"shop_{uuid4().hex}"

    def write(text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield write
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("text", "lines", "said"),
    [
        ("x = 1\ny = x / 0\n", [2], "ZeroDivisionError: division by zero"),
        ("def f():\n    g()\n\nf()\n", [4, 2], "NameError: name 'g' is not defined"),
        ("import nowhere_to_be_found\n", [1], "No module named 'nowhere_to_be_found'"),
        (
            "from flowfabric import App\n\napp = App()\n\n@app.task('t')\ndef t(): ...\n",
            [5],
            "ConfigError: task: t: its first parameter must be the context (ctx: Ctx)",
        ),
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('n') from e\n",
            [2, 4],
            "ValueError: n",
        ),
    ],
    ids=["at once", "in a function", "in an import", "in a decorator of ours", "with a cause"],
)
def test_the_traceback_has_the_frames_of_the_user_alone(
    module: Write, capsys: pytest.CaptureFixture[str], text: str, lines: list[int], said: str
) -> None:
    name = module(text)

    with pytest.raises(ConfigError) as refused:
        load_app(f"{name}:app")

    shown = capsys.readouterr().err
    frames = [line.strip() for line in shown.splitlines() if line.strip().startswith("File ")]
    assert [int(frame.split("line ")[1].split(",")[0]) for frame in frames] == lines
    assert all(f"{name}.py" in frame for frame in frames)
    assert f"cannot import {name}: {said}" in str(refused.value)


def test_a_line_that_is_not_python_is_shown(
    module: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module("app = App(\n")

    with pytest.raises(ConfigError, match="SyntaxError"):
        load_app(f"{name}:app")

    shown = capsys.readouterr().err
    assert f'{name}.py", line 1' in shown
    assert "importlib" not in shown


def test_a_module_that_does_not_exist_is_no_traceback(
    module: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("nowhere:app", "nowhere.tasks:app"):
        with pytest.raises(ConfigError, match="No module named 'nowhere'"):
            load_app(path)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shop = App()", "module {} has no attribute app; its apps: shop"),
        ("", "module {} has no attribute app; it has no flowfabric.App"),
        ("app = None; a = b = App()", "app of module {} is NoneType, not .*; its apps: a, b"),
    ],
)
def test_an_app_of_another_name_is_suggested(module: Write, text: str, said: str) -> None:
    name = module(f"from flowfabric import App\n\n{text}\n")

    with pytest.raises(ConfigError, match=said.format(name)):
        load_app(f"{name}:app")
