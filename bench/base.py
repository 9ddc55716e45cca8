"""The base of a comparison: another commit of this repository, in an environment of its own."""

import shutil
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from bench.environments import InstallationError, is_installed, prepare, run
from bench.systems import BASE, CACHE, OURS, OWN_ADAPTER, ROOT, SYSTEMS, System

WHAT: Final = "the base"


def prepare_base(revision: str, console: Console) -> System:
    """Install FlowFabric as it is at `revision`; this tree's adapter measures it.

    The environment is named after the commit and used again. It has the versions of this tree's
    constraints.txt, so that only FlowFabric differs. Raises `InstallationError`.
    """
    commit = run(WHAT, "git", "rev-parse", "--verify", "--short=12", f"{revision}^{{commit}}")
    source = CACHE / f"source-{commit}"
    system = System(
        name=BASE,
        title=f"base {commit[:9]}",
        adapter=OWN_ADAPTER,
        requirements=(
            f"flowfabric[fast] @ {source.as_uri()}",
            "psutil>=6",
            f"--constraint={ROOT / 'constraints.txt'}",
        ),
        folder=f"base-{commit}",
    )
    if not is_installed(system):
        _write_files(commit, source)
        try:
            prepare(system, console)
        finally:
            shutil.rmtree(source)
    return system


def head() -> System:
    """FlowFabric as it is in this tree, named after its commit."""
    try:
        commit = run(OURS, "git", "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*")
    except InstallationError:  # the files without their repository
        return SYSTEMS[OURS]
    return msgspec.structs.replace(SYSTEMS[OURS], title=f"head {commit}")


def _write_files(commit: str, into: Path) -> None:
    """The files of `commit`, without touching the branch that is checked out."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    archive = into.with_suffix(".tar")
    try:
        run(WHAT, "git", "archive", "--format=tar", f"--output={archive}", commit)
        shutil.unpack_archive(archive, into)
    finally:
        archive.unlink(missing_ok=True)
