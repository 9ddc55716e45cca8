"""Reads of executions; none has a side effect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from flowfabric.engine.executions.attempts import Attempt, list_attempts
from flowfabric.engine.executions.describe import (
    ExecutionInfo,
    ExecutionSnapshot,
    describe_execution,
    read_execution_info,
    read_execution_state,
)
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.executions.explanation import Explanation
from flowfabric.engine.executions.facts import (
    get_execution_namespace,
    get_execution_tag,
    read_current_attempt_index,
    read_exec_core_fields,
    read_total_attempt_count,
    resolve_execution_flow_id,
)
from flowfabric.engine.executions.list_executions import Page, list_executions
from flowfabric.engine.executions.list_expired_leases import (
    AfterLease,
    ExpiredLeasePage,
    list_expired_leases,
)
from flowfabric.engine.executions.outcomes import Outcome, get_execution_result, read_outcomes
from flowfabric.engine.executions.read_execution_context import (
    ExecutionContext,
    read_execution_context,
)
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

    async def explain_execution(self, execution_id: ExecutionId) -> Explanation:
        return await self._run("explain", lambda conn: explain_execution(conn, execution_id))

    async def read_execution_context(self, execution_id: ExecutionId) -> ExecutionContext:
        return await self._run("context", lambda conn: read_execution_context(conn, execution_id))

    async def read_current_attempt_index(self, execution_id: ExecutionId) -> int:
        return await self._run(
            "read_current_attempt_index",
            lambda conn: read_current_attempt_index(conn, execution_id),
        )

    async def read_total_attempt_count(self, execution_id: ExecutionId) -> int:
        return await self._run(
            "attempt_count", lambda conn: read_total_attempt_count(conn, execution_id)
        )

    async def get_execution_tag(self, execution_id: ExecutionId, key: str) -> str | None:
        return await self._run("tag", lambda conn: get_execution_tag(conn, execution_id, key))

    async def get_execution_namespace(self, execution_id: ExecutionId) -> str | None:
        return await self._run(
            "namespace", lambda conn: get_execution_namespace(conn, execution_id)
        )

    async def resolve_execution_flow_id(self, execution_id: ExecutionId) -> UUID | None:
        return await self._run("flow", lambda conn: resolve_execution_flow_id(conn, execution_id))

    async def read_exec_core_fields(
        self, partition: PartitionKey, execution_id: ExecutionId, names: Sequence[str]
    ) -> dict[str, str | None]:
        return await self._run(
            "fields", lambda conn: read_exec_core_fields(conn, partition, execution_id, names)
        )

    async def list_expired_leases(
        self,
        *,
        as_of: datetime | None = None,
        after: AfterLease | None = None,
        limit: int = 1000,
        namespace: str | None = None,
    ) -> ExpiredLeasePage:
        return await self._run(
            "list_expired_leases",
            lambda conn: list_expired_leases(
                conn, as_of=as_of, after=after, limit=limit, namespace=namespace
            ),
        )
