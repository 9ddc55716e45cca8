"""The steps of a Containerfile, run below a directory instead of in containers.

`/opt/flowfabric` is that path below the directory. Dependencies are those of the environment that
runs the tests, so nothing is downloaded.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_OFFLINE: Final = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


class Image:
    """What the steps have made so far: files of the stage at work, its variables, its command."""

    def __init__(self, place: Path, context: Path) -> None:
        self._place, self._context = place, context
        self._stages: dict[str, Path] = {}
        self._ignored = [
            line.removeprefix("**/")
            for line in (context / ".dockerignore").read_text().splitlines()
            if line and not line.startswith("#")
        ]
        self.root = self.directory = place
        self.environment: dict[str, str] = {}
        self.command: Sequence[str] = ()

    def build(self, steps: Sequence[tuple[str, str]]) -> None:
        """Run the steps in their order."""
        for word, rest in steps:
            match word:
                case "FROM":
                    self._begin(rest)
                case "WORKDIR":
                    self.directory = self._below(rest)
                    self.directory.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(rest)
                case "RUN":
                    self._run(rest)
                case "ENV":
                    for each in rest.split():
                        name, _, value = each.partition("=")
                        self.environment[name] = value
                case "CMD":
                    self.command = json.loads(rest)
                case "USER" | "EXPOSE" | "STOPSIGNAL":
                    pass
                case _:
                    raise AssertionError(f"{word} is a step that no test runs")

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process in the image."""
        inherited = os.environ["PATH"]
        made = {
            name: self._rooted(value).replace("$PATH", inherited)
            for name, value in self.environment.items()
        }
        return {"PATH": inherited, **made, **more}

    def _begin(self, rest: str) -> None:
        _, _, name = rest.partition(" AS ")
        self.root = self.directory = self._place / (name or "image")
        self.root.mkdir(parents=True)
        self._stages[name] = self.root

    def _below(self, path: str) -> Path:
        return self.root / path.lstrip("/") if path.startswith("/") else self.directory / path

    def _rooted(self, text: str) -> str:
        return re.sub(r"(?<![\w/.])/(?=opt/|build|app)", f"{self.root}/", text)

    def _copy(self, rest: str) -> None:
        named = re.fullmatch(r"--from=(\S+) (\S+) (\S+)", rest)
        if named is not None:
            source = self._stages[named[1]] / named[2].lstrip("/")
            target = self._below(named[3])
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)  # a venv names its own path, which in containers stays the same
            self._moved(source, target)
            return
        source, target = rest.split()
        shutil.copytree(
            self._context / source,
            self._below(target),
            ignore=self._left_out,
            dirs_exist_ok=True,
        )

    def _left_out(self, directory: str, names: list[str]) -> set[str]:
        below = Path(directory).relative_to(self._context)
        return {
            name
            for name in names
            for each in self._ignored
            if fnmatch.fnmatch(name, each) or fnmatch.fnmatch(str(below / name), each)
        }

    @staticmethod
    def _moved(source: Path, target: Path) -> None:
        """Commands of the venv name its interpreter where it is now."""
        for each in (target / "bin").iterdir():
            if each.is_file() and not each.is_symlink():
                text = each.read_bytes()
                each.write_bytes(text.replace(str(source).encode(), str(target).encode()))

    def _run(self, rest: str) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        subprocess.run(
            ["/bin/sh", "-ec", self._rooted(rest)],
            cwd=self.directory,
            env={**os.environ, **_OFFLINE, "PATH": path},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if "pip install" in rest:
            [packages] = self.root.glob("opt/*/lib/python*/site-packages")
            outer = sysconfig.get_paths()["purelib"]
            (packages / "dependencies_of_the_tests.pth").write_text(f"{outer}\n")
