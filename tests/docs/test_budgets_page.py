"""Every example of the guide on budgets runs and does what its page says."""

from __future__ import annotations

import importlib

import pytest

from flowfabric import Client
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.release_lost_races import release_lost_races
from tests.docs.conftest import Reader

PAGE = "docs/guides/budgets.md"


async def test_the_examples_of_the_guide(
    reader: Reader, client: Client, db: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    reader.opens(PAGE)
    agent = importlib.import_module("agent")

    async with agent.app.worker():
        seen = await reader.python("budgets-create", client=client, agent=agent.agent)
    while await release_lost_races(db, 100):
        pass
    looked = await reader.shell("budgets-look")
    await reader.python("budgets-release", client=client, handle=seen["handle"])
    await reader.shell("budgets-limits")

    assert capsys.readouterr().out == "small: why!\n{'tokens': 300}\n"
    assert looked.count("2,500 of 100,000") == 2, "the plan and the winner"
    status = await client.budgets.status("agent")
    assert (status.hard_limits, status.usage) == ({"tokens": 200_000}, {"tokens": 0})


async def test_the_agent_of_the_guide_says_when_its_budget_is_spent(
    reader: Reader, client: Client
) -> None:
    reader.opens(PAGE)
    agent = importlib.import_module("agent")
    await client.budgets.create("agent", hard={"tokens": 600})
    await client.budgets.report("agent", {"tokens": 200})

    async with agent.app.worker():
        handle = await client.submit(agent.agent.call("why"))

        assert await handle.result(timeout=10) == "come back tomorrow: 200 tokens are used"
