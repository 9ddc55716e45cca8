"""Where a mutant lives: a copy of the tree that imports itself, and the run that must notice it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.proofs.figures import Figure, Row
from tests.proofs.mutants.mutant import Mutant
from tests.proofs.proof import TO_ITS_END

TREE: Final = Path(__file__).parents[3]
PATIENCE: Final = 600.0
_COPIED: Final = ("src", "tests", "pyproject.toml")
_FAILED: Final = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)
_CANNOT_RUN: Final = (
    "ImportError|ModuleNotFoundError|SyntaxError|NameError|AttributeError|TypeError"
)
_NO_FINDING: Final = re.compile(rf"^(?:E +)?(?:{_CANNOT_RUN})\b", re.MULTILINE)
"""A mutant that does not even run proves nothing."""


class Catcher(msgspec.Struct, frozen=True):
    """What is run against a mutant: one proof at its quick size, or tests by their node ids."""

    proof: str = ""
    tests: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.proof or " ".join(self.tests)


class Verdict(msgspec.Struct, frozen=True):
    """How a run ended: `failed` names what did, `broken` says why the run is worth nothing."""

    seconds: float
    failed: str = ""
    broken: str = ""
    promises: frozenset[str] = frozenset()
    """The promises of the figures that fell short."""

    def caught(self, mutant: Mutant) -> bool:
        """Did it notice the fault, by a figure of a promise that the fault breaks?"""
        told_of = not self.promises or bool(self.promises & set(mutant.breaks))
        return bool(self.failed) and told_of


@contextlib.contextmanager
def copied() -> Generator[Path]:
    """A copy of the tree, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="flowfabric-mutant-") as directory:
        tree = Path(directory)
        for name in _COPIED:
            if (TREE / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(TREE / name, tree / name, ignore=ignored)
            else:
                shutil.copy(TREE / name, tree / name)
        yield tree


def tried(mutant: Mutant | None, catcher: Catcher, *, dsn: str, seed: int) -> Verdict:
    """Run the catcher against a copy with the fault in it, or without any."""
    with copied() as tree:
        if mutant is not None:
            mutant.plant(tree)
        return _run(catcher, tree, dsn=dsn, seed=seed)


def _run(catcher: Catcher, tree: Path, *, dsn: str, seed: int) -> Verdict:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "FF_DATABASE_URL": dsn,
        "FF_PROOF_SEED": str(seed),
    }
    begun = time.monotonic()
    found = [sys.executable, "-c", "import flowfabric; print(flowfabric.__file__)"]
    _, where = _done(found, tree, environment)
    if not where.startswith(str(tree)):
        return Verdict(0.0, broken=f"not the copy is imported, but {where.strip()}")
    report = tree / "report.json"
    code, said = _done([sys.executable, "-m", *_command(catcher, seed, report)], tree, environment)
    seconds = time.monotonic() - begun
    if code is None:
        return Verdict(seconds, broken=f"not done within {PATIENCE:.0f} s")
    if code == 0:
        return Verdict(seconds)
    if code != 1 or (catcher.proof and not report.exists()):
        return Verdict(seconds, broken=f"exit code {code}: {said.strip()[-1500:]}")
    return _of_proof(report, seconds) if catcher.proof else _of_tests(said, seconds)


def _done(
    command: Sequence[str], tree: Path, environment: dict[str, str]
) -> tuple[int | None, str]:
    """The exit code and all that was said; without a code if it took too long.

    It has a group of its own, so that what it started ends with it.
    """
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return None, said
    return process.returncode, said


def _command(catcher: Catcher, seed: int, report: Path) -> list[str]:
    if catcher.proof:
        size = ["--quick", "--only", catcher.proof, "--seed", str(seed)]
        return ["tests.proofs", *size, "--report", str(report)]
    options = ["-x", "-q", "--tb=short", "--timeout=60", "-p", "no:cacheprovider"]
    return ["pytest", *options, *(f"tests/{each}" for each in catcher.tests)]


def _of_proof(report: Path, seconds: float) -> Verdict:
    """A figure that speaks of no promise, such as how much was tried, is no finding."""
    rows = msgspec.json.decode(report.read_bytes(), type=list[Row])
    short = [row.figure for row in rows if not row.figure.held and row.figure.promise]
    if not short:
        return Verdict(seconds, broken="only figures without a promise fell short")
    for figure in short:
        if figure.what == TO_ITS_END and _NO_FINDING.search(figure.reached):
            return Verdict(seconds, broken=figure.reached)
    promises = frozenset(each for figure in short for each in figure.promise.split(", "))
    return Verdict(seconds, failed=_told(short[0]), promises=promises)


def _told(figure: Figure) -> str:
    return f"{figure.promise}: {figure.what}: {figure.reached}"[:400]


def _of_tests(said: str, seconds: float) -> Verdict:
    failed = _FAILED.search(said)
    if failed is None or _NO_FINDING.search(said):
        return Verdict(seconds, broken=said.strip()[-1500:])
    return Verdict(seconds, failed=failed[1])
