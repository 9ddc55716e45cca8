"""Reads of executions; none has a side effect."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.engine.executions.attempts import Attempt, list_attempts
from flowfabric.engine.executions.describe import (
    ExecutionInfo,
    ExecutionSnapshot,
    describe_execution,
    read_execution_info,
    read_execution_state,
)
from flowfabric.engine.executions.list_executions import Page, list_executions
from flowfabric.engine.executions.outcomes import Outcome, get_execution_result, read_outcomes
from flowfabric.engine.executions.search import Search, SearchPage, search_executions
from flowfabric.engine.facade.base import Base
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.states import PublicState


class Reads(Base):
    """What executions are and where they stand."""

    async def describe_execution(self, execution_id: ExecutionId) -> ExecutionSnapshot | None:
        return await self._run("describe", lambda conn: describe_execution(conn, execution_id))

    async def read_execution_state(self, execution_id: ExecutionId) -> PublicState | None:
        return await self._run("state", lambda conn: read_execution_state(conn, execution_id))

    async def read_execution_info(self, execution_id: ExecutionId) -> ExecutionInfo | None:
        return await self._run("info", lambda conn: read_execution_info(conn, execution_id))

    async def get_execution_result(self, execution_id: ExecutionId) -> bytes | None:
        return await self._run("result", lambda conn: get_execution_result(conn, execution_id))

    async def read_outcomes(self, executions: Sequence[ExecutionId]) -> dict[ExecutionId, Outcome]:
        return await self._run("outcomes", lambda conn: read_outcomes(conn, executions))

    async def list_attempts(self, execution_id: ExecutionId) -> list[Attempt]:
        return await self._run("attempts", lambda conn: list_attempts(conn, execution_id))

    async def list_executions(
        self, partition: PartitionKey, *, cursor: ExecutionId | None = None, limit: int = 100
    ) -> Page:
        return await self._run(
            "list", lambda conn: list_executions(conn, partition, cursor=cursor, limit=limit)
        )

    async def search_executions(
        self, search: Search, *, cursor: str | None = None, limit: int = 50
    ) -> SearchPage:
        return await self._run(
            "search", lambda conn: search_executions(conn, search, cursor=cursor, limit=limit)
        )
