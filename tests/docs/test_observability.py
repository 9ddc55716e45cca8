"""The guide to metrics, traces and logs: its examples run, and name what there is."""

from __future__ import annotations

import importlib
import json
import logging
import re
import socket
import subprocess
import sys
from types import ModuleType

import pytest

from flowfabric import Client, PublicState
from tests.docs.conftest import Reader
from tests.docs.pages import ROOT, block, quoted, rows, sections

PAGE = "docs/guides/observability.md"


@pytest.fixture
def jobs(reader: Reader) -> ModuleType:
    reader.opens("docs/guides/running-workers.md")
    reader.page = PAGE
    return importlib.import_module("jobs")


async def test_a_worker_answers_scrapes(reader: Reader, jobs: ModuleType, client: Client) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    nap = await client.submit(jobs.nap.call(0.01))

    command = block(PAGE, "worker-metrics").text.replace("9464", str(port))
    said = await reader.run("sh", "-eu", "-c", command)

    assert f"metrics at http://127.0.0.1:{port}/metrics" in said
    assert await nap.state() is PublicState.COMPLETED


async def test_a_program_exports_by_itself(
    reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    reader.page = PAGE
    await reader.python("own-export")

    assert re.fullmatch(
        r"metrics at port \d+\ntext/plain; version=0\.0\.4; charset=utf-8 True\n",
        capsys.readouterr().out,
    )


async def test_a_provider_makes_spans_of_a_submit_by_sql(
    reader: Reader, jobs: ModuleType, client: Client
) -> None:
    [[submitted]] = await reader.sql("traceparent")
    tracing = block(PAGE, "tracing").text
    (reader.place / "traced.py").write_text(f"{tracing}\nfrom jobs import app\n")

    said = await reader.run("ff", "worker", "traced:app", "--until-idle")

    assert await client.handle(str(submitted)).state() is PublicState.COMPLETED
    assert '"name": "run nap"' in said
    assert '"trace_id": "0x0af7651916cd43dd8448eb211c80319c"' in said
    assert '"parent_id": "0xb7ad6b7169203331"' in said


async def test_levels_and_format_come_from_the_environment(
    reader: Reader, jobs: ModuleType
) -> None:
    said = await reader.shell("log-levels")

    told = [json.loads(line) for line in said.splitlines()]
    assert all(each["level"] != "info" for each in told)
    assert all(
        each["logger"] == "flowfabric.reconcile" for each in told if each["level"] == "debug"
    )


def test_every_logger_on_the_page_is_one() -> None:
    listed = {name for cells in rows(sections(PAGE, 2)["Logs"]) for name in quoted(cells[0])}
    source = "".join(path.read_text() for path in (ROOT / "src/flowfabric").rglob("*.py"))

    assert "flowfabric.audit" in listed
    for name in listed:
        assert f'getLogger("{name}")' in source, name
    assert logging.getLogger("flowfabric.audit").level == logging.INFO


def test_the_package_needs_neither_extra() -> None:
    program = (
        "import sys\n"
        "sys.modules['prometheus_client'] = sys.modules['opentelemetry'] = None\n"
        "import flowfabric, flowfabric.cli.main, flowfabric.sync\n"
        "from flowfabric.tracing import with_traceparent\n"
        "assert with_traceparent({}) == {}\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT / "src")
