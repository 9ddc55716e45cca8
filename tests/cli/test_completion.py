"""Completion in the shell: the lanes and kinds of the database, and never an error."""

from __future__ import annotations

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from tests import given
from tests.cli.conftest import Answer, Inside


async def complete(ff: Inside, line: str) -> Answer:
    """What the shell would offer after this line."""
    return await ff(_FF_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ff executions list --lane pa", ["payments"]),
        ("ff lanes pause ", ["default", "payments"]),
        ("ff submit ", ["charge", "offered"]),
        ("ff submit charge --lane d", ["default"]),
        ("ff executions cancel --kind off", ["offered"]),
        ("ff executions list --state comp", ["completed"]),
        ("ff executions list --lane nothing", []),
    ],
)
async def test_lanes_and_kinds_are_completed(
    ff: Inside, db: Connection, ff_engine: Engine, line: str, offered: list[str]
) -> None:
    await given.created(db, lane_id="payments", execution_kind="charge")
    await given.created(db, execution_kind="charge")
    await ff_engine.register_worker(
        worker_id="w", worker_instance_id="w", lanes=["default"], kinds=["offered"], liveness_ttl=60
    )

    assert (await complete(ff, line)).out.split() == offered


@pytest.mark.parametrize("url", [None, "postgresql://nobody@127.0.0.1:1/x", "mysql://x"])
async def test_without_a_database_nothing_is_offered_and_nothing_said(
    ff_alone: Inside, url: str | None
) -> None:
    environment = {} if url is None else {"FF_DATABASE_URL": url}
    asked = Inside({**ff_alone.environment, **environment})

    answer = await complete(asked, "ff lanes pause ")

    assert (answer.out.strip(), answer.err) == ("", "")
