"""`ff worker`: whole processes, from start to stop."""

import asyncio
import json
import signal

import pytest

from tests.cli.conftest import Inside, Shell, one_line
from tests.worker.facts import eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("application", "why"),
    [
        ("shop", "must look like MODULE:APP"),
        ("nowhere:app", "cannot import"),
        ("shop:nothing", "module shop has no attribute nothing; its apps: app, empty"),
        ("shop:not_an_app", "not_an_app of module shop is int, not a flowfabric.App"),
        ("shop:empty", "has no tasks"),
    ],
)
async def test_an_application_that_cannot_be_loaded_is_one_clear_line(
    shell: Shell, application: str, why: str
) -> None:
    line = one_line(await shell.ff("worker", application), 2)

    assert repr(application) in line or application in line
    assert why in line


async def test_a_worker_runs_what_is_there_and_stops_when_idle(shell: Shell) -> None:
    without_uvloop = "raise ModuleNotFoundError(\"No module named 'uvloop'\")"
    (shell.directory / "uvloop.py").write_text(without_uvloop)
    submitted = await shell.ff("submit", "double", '{"n": 21}', "--json")
    failing = (await shell.ff("submit", "broken", "--json")).json["execution_id"]

    worked = await shell.ff("worker", "shop:app", "--until-idle")
    shown = await shell.ff("executions", "show", submitted.json["execution_id"], "--json")
    failed = await shell.ff("executions", "show", failing, "--json")

    assert worked.code == 0, worked.err
    assert (shown.json["public_state"], shown.json["result"]) == ("completed", 42)
    attempt = f"broken {failing} attempt 1"
    assert f" INFO    shop  looking for x  [{attempt}]\n" in worked.err
    assert (
        f" ERROR   flowfabric.worker  {attempt} of 1 failed: KeyError: 'x'; no retry is left\n"
        "Traceback (most recent call last):\n" in worked.err
    )
    assert "uvloop" not in worked.err
    assert failed.json["failure_reason"] == "KeyError: 'x'"


async def test_two_processes_serve_and_stop_together(shell: Shell) -> None:
    shell.environment["FF_LOG_FORMAT"] = "json"
    supervisor = await shell.start("worker", "shop:app", "--processes", "2")

    async def both_are_registered() -> bool:
        return len((await shell.ff("workers", "--json")).json["workers"]) == 2

    await eventually(both_are_registered, within=30)
    waited = await shell.ff("submit", "pid", "--wait", "--timeout", "20", "--json")
    await shell.ff("submit", "broken", "--wait", "--timeout", "20")
    supervisor.send_signal(signal.SIGTERM)
    _, err = await asyncio.wait_for(supervisor.communicate(), 30)

    assert (waited.code, supervisor.returncode) == (0, 0)
    assert waited.json["result"] != supervisor.pid
    lines = [json.loads(line) for line in err.splitlines()]
    [info] = [line for line in lines if line["logger"] == "shop"]
    [failed] = [line for line in lines if line["level"] == "error"]
    assert len({line["process"] for line in lines} - {supervisor.pid}) == 2
    assert failed == failed | {
        "event": "attempt_failed",
        "kind": "broken",
        "execution_id": info["execution_id"],
        "attempt": 1,
        "max_attempts": 1,
        "error_type": "KeyError",
        "error": "KeyError: 'x'",
        "category": "handler_error",
        "process": info["process"],
    }
    assert failed["traceback"].rstrip().endswith("KeyError: 'x'")
    assert (await shell.ff("workers", "--json")).json["workers"] == []


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_second_signal_ends_a_worker_at_once_and_is_its_exit_code(
    shell: Shell, ff: Inside, processes: int
) -> None:
    napping = (await ff("submit", "nap", "--json")).json["execution_id"]
    worker = await shell.start(
        "worker", "shop:app", "--processes", str(processes), "--log-level", "info"
    )
    assert worker.stderr is not None

    async def runs() -> bool:
        shown = await ff("executions", "show", napping, "--json")
        return shown.json["public_state"] == "active"

    await eventually(runs, within=30)
    worker.send_signal(signal.SIGTERM)
    await asyncio.wait_for(worker.stderr.readuntil(b"drains: 1 handler runs"), 30)
    worker.send_signal(signal.SIGTERM)
    _, err = await asyncio.wait_for(worker.communicate(), 30)

    assert worker.returncode == 128 + signal.SIGTERM
    assert err.decode().count("a second SIGTERM cut the stop short") == 1
