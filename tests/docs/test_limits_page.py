"""Every example of the guide on limits runs and does what its page says."""

from __future__ import annotations

import importlib

import pytest

from flowfabric import Client
from flowfabric.db.rows import Connection
from tests.docs.conftest import Reader
from tests.docs.pages import block

PAGE = "docs/guides/limits.md"


async def test_the_examples_of_the_guide(
    reader: Reader,
    client: Client,
    db: Connection,
    ff_dsn: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reader.opens(PAGE)
    billing = importlib.import_module("billing")
    names = {"bill": billing.bill, "call_api": billing.call_api, "report": billing.report}

    await reader.python("limits-submit", client=client, **names)
    await billing.app.worker(dsn=ff_dsn).run_until_idle()
    await reader.python("limits-change", client=client)
    await db.execute(block(PAGE, "limits-sql").text)
    await reader.python("limits-unique", client=client, **names)

    assert capsys.readouterr().out.splitlines()[:2] == ["api 0 5", "per-customer 1 0"]
    assert (await client.search(kind="bill")).executions[0].public_state == "waiting"


async def test_the_batch_handler_of_the_guide(reader: Reader, client: Client, ff_dsn: str) -> None:
    reader.opens(PAGE)
    indexing = importlib.import_module("indexing")
    handles = await client.submit_many(indexing.index.many(["one", "", "three"]))
    await indexing.app.worker(dsn=ff_dsn).run_until_idle()

    assert [await handles[0].result(), await handles[2].result()] == [3, 5]
    assert await handles[1].state() == "failed"
