"""`ff worker --metrics-port`: one process, and several behind one port."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import urllib.request

import pytest

from tests.cli.conftest import Shell, one_line
from tests.worker.facts import eventually

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


async def scraped(port: int) -> str:
    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()

    try:
        return await asyncio.to_thread(scrape)
    except OSError:
        return ""


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_port_answers_for_all_processes(shell: Shell, processes: str) -> None:
    port = free_port()
    worker = await shell.start(
        "worker", "shop:app", "--processes", processes, "--metrics-port", str(port),
        "--metrics-database",
    )  # fmt: skip
    try:
        for _ in range(2):
            await shell.ff("submit", "double", '{"n": 1}', "--wait", "--timeout", "30")

        async def counted() -> bool:
            text = await scraped(port)
            ended = re.search(r'ff_attempt_outcome_total\{lane="\w+",outcome="ok"\} 2\.0', text)
            return bool(ended) and 'state="waiting"' in text

        await eventually(counted, within=40)
    finally:
        worker.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(worker.communicate(), 30)
    assert worker.returncode == 0
    assert f"metrics at http://127.0.0.1:{port}/metrics" in err.decode()


async def test_a_port_that_is_taken_is_one_clear_line(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = one_line(await shell.ff("worker", "shop:app", "--metrics-port", port), 2)
    needs_port = await shell.ff("worker", "shop:app", "--metrics-database")

    assert "--metrics-port" in line
    assert port in line
    assert needs_port.code == 2
    assert "needs --metrics-port" in needs_port.err
