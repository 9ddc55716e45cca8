"""The guide to events: its examples run, and its tables have the words of the code."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from types import ModuleType
from typing import Any

import pytest

from flowfabric import Client
from flowfabric.db.rows import Connection
from flowfabric.states import LeaseEventType, OperatorEventType
from tests import given
from tests.docs.conftest import Reader
from tests.docs.pages import quoted, rows, sections
from tests.worker.facts import eventually

EVENTS = "docs/guides/events.md"


@pytest.fixture
async def jobs(reader: Reader) -> AsyncGenerator[ModuleType]:
    """The app of the page about workers, and a worker that runs it."""
    reader.opens("docs/guides/running-workers.md")
    module = importlib.import_module("jobs")
    reader.page = EVENTS
    async with module.app.worker():
        yield module


async def test_ends_are_followed_and_taken_up_again(
    reader: Reader, client: Client, jobs: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"client": client, "nap": jobs.nap}
    names = await reader.python("follow", **names)
    first = capsys.readouterr().out
    missed = await client.submit_many([jobs.nap.call(0.01) for _ in range(3)])
    for handle in missed:
        await handle.result(timeout=10)
    names = await reader.python("resume", **{**names, "last": missed[-1]})

    assert first == f"{names['handle'].execution_id} success nap default\n"
    told = capsys.readouterr().out
    assert str(missed[-1].execution_id) in told
    assert str(names["handle"].execution_id) not in told


async def test_a_tail_prints_what_ended(reader: Reader, client: Client, jobs: ModuleType) -> None:
    handle = await client.submit(jobs.nap.call(0.01))
    await handle.result(timeout=10)

    said = await reader.shell("tail")

    assert said.count(str(handle.execution_id)) == 2
    assert '"cursor":"02' in said


async def test_only_what_has_the_tag_is_told(
    reader: Reader, client: Client, jobs: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await client.submit(jobs.nap.call(0.01))

    await reader.python("filtered", client=client, nap=jobs.nap)

    assert capsys.readouterr().out == "{'shop.tenant': 'acme'}\n"


async def test_lanes_are_told_by_the_engine(
    reader: Reader, client: Client, jobs: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    await reader.python("everything", client=client)

    assert capsys.readouterr().out.startswith(f"lane_state_changed {client.identity} deploy 42")


@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_subscription_that_was_cut_goes_on(
    reader: Reader, client: Client, db: Connection
) -> None:
    reader.opens(EVENTS)
    names = await reader.python("reconnect")
    seen: list[Any] = []

    async def deal_with(event: Any) -> None:
        seen.append(event)

    following = asyncio.create_task(names["follow_leases"](client, deal_with))
    try:
        await eventually(
            lambda: db.fetchval("SELECT count(*) FROM ff.waiter WHERE topic = 'lease'")
        )
        first = await given.claimed(db)
        await eventually(lambda: len(seen) == 1)
        await db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'flowfabric %' AND datname = current_database()"
            " AND application_name <> 'flowfabric tests'"
        )
        second = await given.claimed(db)
        await eventually(lambda: len(seen) == 2, within=20)
    finally:
        following.cancel()
        await asyncio.wait({following})

    assert [each.execution_id for each in seen] == [first.execution_id, second.execution_id]


def test_every_kind_of_event_is_listed() -> None:
    listed = [quoted(cells[0])[0] for cells in rows(sections(EVENTS, 2)["Every kind of event"])]

    kinds = [*LeaseEventType, *OperatorEventType]
    assert sorted(listed) == sorted(kind.value for kind in kinds)
