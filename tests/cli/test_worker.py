"""`ff worker`: whole processes, from start to stop."""

import asyncio
import signal

import pytest

from tests.cli.conftest import Shell, one_line
from tests.worker.facts import eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("application", "why"),
    [
        ("shop", "must look like MODULE:APP"),
        ("nowhere:app", "cannot import"),
        ("shop:nothing", "not a flowfabric.App"),
        ("shop:not_an_app", "is int, not a flowfabric.App"),
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
    submitted = await shell.ff("submit", "double", '{"n": 21}', "--json")

    worked = await shell.ff("worker", "shop:app", "--until-idle")
    shown = await shell.ff("executions", "show", submitted.json["execution_id"], "--json")

    assert worked.code == 0, worked.err
    assert (shown.json["public_state"], shown.json["result"]) == ("completed", 42)


async def test_two_processes_serve_and_stop_together(shell: Shell) -> None:
    supervisor = await shell.start("worker", "shop:app", "--processes", "2")

    async def both_are_registered() -> bool:
        return len((await shell.ff("workers", "--json")).json["workers"]) == 2

    await eventually(both_are_registered, within=30)
    waited = await shell.ff("submit", "pid", "--wait", "--timeout", "20", "--json")
    supervisor.send_signal(signal.SIGTERM)
    code = await asyncio.wait_for(supervisor.wait(), 30)

    assert (waited.code, code) == (0, 0)
    assert waited.json["result"] != supervisor.pid
    assert (await shell.ff("workers", "--json")).json["workers"] == []
