"""Several worker processes: their command, and what is said of one that died."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from flowfabric.cli import supervisor
from flowfabric.cli.worker import one_process

FAILS_ONCE = """
import pathlib, sys
ran = pathlib.Path(sys.argv[1])
if ran.exists():
    sys.exit(0)
ran.touch()
sys.exit(3)
"""


@pytest.fixture
def signals() -> Generator[None]:
    """The handlers of signals are afterwards what they were."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("healthy_after", "when"), [(10.0, "in 0.5 s"), (-1.0, "at once")])
def test_a_process_that_died_is_restarted_and_the_log_says_when(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    healthy_after: float,
    when: str,
) -> None:
    monkeypatch.setattr(supervisor, "_HEALTHY_AFTER", healthy_after)
    command = [sys.executable, "-c", FAILS_ONCE, str(tmp_path / "ran")]

    assert supervisor.supervise(command, 1, environment={}) == 0

    assert caplog.messages == [f"a process exited with 3; restarting {when}"]


@pytest.mark.parametrize("processes", [["--processes", "2"], ["--processes=2"]])
def test_a_worker_process_gets_the_other_options_once(processes: list[str]) -> None:
    command = one_process(["worker", "shop:app", *processes, "--drain", "5"])

    assert command[1:] == ["-m", "flowfabric.cli", "worker", "shop:app", "--drain", "5"]
