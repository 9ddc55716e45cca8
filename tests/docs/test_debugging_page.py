"""The guide to debugging: what it shows of logs and of failed executions."""

from __future__ import annotations

import importlib
import logging
import re

import pytest

from flowfabric import Client, LogContext
from tests.docs.conftest import Reader
from tests.docs.pages import block

DEBUGGING = "docs/guides/debugging.md"


async def test_the_log_of_a_failing_task_is_as_the_page_shows_it(reader: Reader) -> None:
    reader.opens(DEBUGGING)

    first, *lines = (await reader.shell("debug-failing")).splitlines()

    said = "\n".join(line for line in lines if f"{first} attempt" in line or line[:1] in "T K")

    def bare(text: str) -> str:
        timeless = re.sub(r"^(\S+ )?[\d:]+\.\d{3} ", "", text, flags=re.MULTILINE)
        return re.sub(r'File "[^"]*prices.py"', "File", timeless).replace(first, "ID").strip()

    assert bare(said) == bare(block(DEBUGGING, "failing-log", "output").text)


async def test_payload_and_traceback_are_read_as_the_page_says(
    reader: Reader, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    reader.opens(DEBUGGING)
    prices = importlib.import_module("prices")
    handle = await client.submit(prices.quote.call("cup", 2))
    await prices.app.worker().run_until_idle()

    await reader.python("debug-look", client=client, execution_id=handle.execution_id)

    said = capsys.readouterr().out
    for comment in re.findall(r"print.*  # (.+)", block(DEBUGGING, "debug-look").text):
        assert f"{comment}\n" in said
    assert '    return pieces * {"tea": 3}[sku]\n' in said
    assert "0 retry KeyError: 'cup'\n1 failed KeyError: 'cup'\n" in said


async def test_the_filter_of_the_page_is_one_for_handlers_of_ones_own(reader: Reader) -> None:
    reader.opens(DEBUGGING)

    names = await reader.python("own-logging")

    handler = names["handler"]
    assert isinstance(handler, logging.Handler)
    assert isinstance(handler.filters[0], LogContext)
