"""A skipped member is replayed in the moment in which its upstream, replayed before, ends well.

Put it into tests/engine/flows/ (e.g. test_replay_member_races.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.engine.facade import Engine
from flowfabric.engine.flows.replay_member import replay_member
from tests.cli.conftest import Shell  # noqa: F401
from tests.engine.flows.graphs import submitted


class Meanwhile:
    """A connection; before its statement that has `marker` something else happens."""

    def __init__(self, conn: Any, marker: str, happens: Any) -> None:
        self._conn, self._marker, self._happens = conn, marker, happens

    async def fetch(self, sql: str, *args: Any) -> Any:
        return await self._run(self._conn.fetch, sql, *args)

    async def execute(self, sql: str, *args: Any) -> Any:
        return await self._run(self._conn.execute, sql, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    async def _run(self, statement: Any, sql: str, *args: Any) -> Any:
        if self._marker in sql and self._happens is not None:
            happens, self._happens = self._happens, None
            await happens()
        return await statement(sql, *args)


@pytest.mark.parametrize("isolation", ["serializable", "read_committed"])
async def test_the_upstream_ends_while_the_downstream_is_replayed(
    ff_engine: Engine, isolation: Any
) -> None:
    flow = await submitted(ff_engine, "a>b")
    await flow.fail("a")
    await flow.carry_all()
    await flow.replay("a")
    await flow.claim("a")

    async def a_ends() -> None:
        await flow.complete("a")
        await flow.carry_all()

    # serializable: between the snapshot (first statement) and RESET; else after RESET's snapshot.
    marker = "what was impossible is open" if isolation == "serializable" else "looked at again"
    async with ff_engine.pool.connection() as conn, conn.transaction(isolation=isolation):
        await replay_member(Meanwhile(conn, marker, a_ends), flow["b"])  # type: ignore[arg-type]
    await flow.carry_all()

    assert await flow.states() == "a:ok b:w"
