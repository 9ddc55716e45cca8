"""Where a mutant lives: a copy of the tree that imports itself, and the run that must notice it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import msgspec

from tests.proofs.mutants.mutant import Catcher, Mutant

TREE: Final = Path(__file__).parents[3]
PATIENCE: Final = 180.0
_COPIED: Final = ("src", "tests", "pyproject.toml")
_FAILED: Final = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)
_NO_FINDING: Final = re.compile(
    r"^E +(ImportError|ModuleNotFoundError|SyntaxError|NameError|AttributeError|TypeError)\b",
    re.MULTILINE,
)
"""A mutant that does not even run proves nothing."""
_SHORT: Final = re.compile(r"\bNO\b")


class Verdict(msgspec.Struct, frozen=True):
    """How a run ended: `failed` names what did, `broken` says why the run is worth nothing."""

    seconds: float
    failed: str = ""
    broken: str = ""


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
    where = subprocess.run(
        [sys.executable, "-c", "import flowfabric; print(flowfabric.__file__)"],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    if not where.startswith(str(tree)):
        return Verdict(0.0, broken=f"not the copy is imported, but {where.strip()}")
    try:
        done = subprocess.run(
            [sys.executable, "-m", *_command(catcher, seed)],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(PATIENCE, broken=f"not done within {PATIENCE:.0f} s")
    return _verdict(catcher, done, time.monotonic() - begun)


def _command(catcher: Catcher, seed: int) -> list[str]:
    if catcher.proof:
        return ["tests.proofs", "--quick", "--only", catcher.proof, "--seed", str(seed)]
    options = ["-x", "-q", "--tb=short", "--timeout=60", "-p", "no:cacheprovider"]
    return ["pytest", *options, *catcher.tests]


def _verdict(catcher: Catcher, done: subprocess.CompletedProcess[str], seconds: float) -> Verdict:
    if done.returncode == 0:
        return Verdict(seconds)
    said = done.stdout + done.stderr
    tail = said.strip()[-1500:]
    if done.returncode != 1:
        return Verdict(seconds, broken=f"exit code {done.returncode}: {tail}")
    if catcher.proof:
        rows = [line for line in done.stdout.splitlines() if _SHORT.search(line)]
        if not rows or "ran to its end" in done.stdout:
            return Verdict(seconds, broken=tail)
        return Verdict(seconds, failed=f"proof {catcher.proof}")
    failed = _FAILED.search(said)
    if failed is None or _NO_FINDING.search(said):
        return Verdict(seconds, broken=tail)
    return Verdict(seconds, failed=failed[1])
