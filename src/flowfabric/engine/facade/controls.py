"""What an operator does to executions and lanes; each change leaves an operator event."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from flowfabric.db.rows import Connection
from flowfabric.engine.facade.base import Base
from flowfabric.engine.flows.replay_member import replay_member
from flowfabric.engine.lanes.set_lane_retention import set_lane_retention
from flowfabric.engine.lanes.set_lane_state import LaneChanged, set_lane_state
from flowfabric.engine.lifecycle.block_execution import (
    Blocked,
    Unblocked,
    block_execution_for_admission,
    unblock_execution,
)
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.cancel_execution import OPERATOR, cancel_execution
from flowfabric.engine.lifecycle.change_priority import Changed, change_priority
from flowfabric.engine.lifecycle.operator_event import SOMEBODY, check_actor, operator_event
from flowfabric.engine.lifecycle.replay_execution import Replayed
from flowfabric.engine.lifecycle.revoke_lease import AlreadySatisfied, Revoked, revoke_lease
from flowfabric.engine.lifecycle.set_execution_tag import set_execution_tag
from flowfabric.engine.lifecycle.trim_retention import Trim, count_trimmable, trim_retention
from flowfabric.ids import ExecutionId
from flowfabric.policy import milliseconds
from flowfabric.states import LaneState, OperatorEventType


class Controls(Base):
    """Serializable where one execution is judged and moved, with the one retry wrapper."""

    async def cancel_execution(
        self,
        execution_id: ExecutionId,
        *,
        reason: str,
        source: str = OPERATOR,
        actor: str = SOMEBODY,
        lease_epoch: int | None = None,
        lease_id: UUID | None = None,
        attempt_id: UUID | None = None,
    ) -> Cancelled:
        return await self._control(
            "cancel_execution",
            lambda conn: cancel_execution(
                conn,
                execution_id,
                reason=reason,
                source=source,
                actor=actor,
                lease_epoch=lease_epoch,
                lease_id=lease_id,
                attempt=attempt_id,
            ),
        )

    async def revoke_lease(
        self,
        execution_id: ExecutionId,
        *,
        reason: str,
        actor: str = SOMEBODY,
        worker_instance_id: str = "",
        expected_lease_id: UUID | str = "",
        expected_lease_epoch: int | None = None,
    ) -> Revoked | AlreadySatisfied:
        return await self._control(
            "revoke_lease",
            lambda conn: revoke_lease(
                conn,
                execution_id,
                reason=reason,
                actor=actor,
                worker_instance_id=worker_instance_id,
                expected_lease_id=expected_lease_id,
                expected_lease_epoch=expected_lease_epoch,
            ),
        )

    async def change_priority(
        self,
        execution_id: ExecutionId,
        new_priority: int,
        *,
        actor: str = SOMEBODY,
        reason: str | None = None,
    ) -> Changed:
        return await self._control(
            "change_priority",
            lambda conn: change_priority(
                conn, execution_id, new_priority, actor=actor, reason=reason
            ),
        )

    async def replay_execution(
        self, execution_id: ExecutionId, *, actor: str = SOMEBODY, reason: str | None = None
    ) -> Replayed:
        return await self._control(
            "replay_execution",
            lambda conn: replay_member(conn, execution_id, actor=actor, reason=reason),
        )

    async def block_execution_for_admission(
        self,
        execution_id: ExecutionId,
        reason: str,
        *,
        detail: str | None = None,
        actor: str = SOMEBODY,
    ) -> Blocked:
        return await self._control(
            "block_execution_for_admission",
            lambda conn: block_execution_for_admission(
                conn, execution_id, reason, detail=detail, actor=actor
            ),
        )

    async def unblock_execution(
        self,
        execution_id: ExecutionId,
        *,
        expected_blocking_reason: str | None = None,
        actor: str = SOMEBODY,
    ) -> Unblocked:
        return await self._control(
            "unblock_execution",
            lambda conn: unblock_execution(
                conn, execution_id, expected_blocking_reason=expected_blocking_reason, actor=actor
            ),
        )

    async def set_execution_tag(self, execution_id: ExecutionId, key: str, value: str) -> None:
        await self._run(
            "set_execution_tag", lambda conn: set_execution_tag(conn, execution_id, key, value)
        )

    async def set_lane_state(
        self,
        lane_id: str,
        lane_state: LaneState | str,
        *,
        actor: str = SOMEBODY,
        reason: str | None = None,
    ) -> LaneChanged:
        return await self._transact(
            "set_lane_state",
            lambda conn: set_lane_state(conn, lane_id, lane_state, actor=actor, reason=reason),
        )

    async def set_lane_retention(
        self, lane_id: str, retention: float | timedelta | None, *, actor: str = SOMEBODY
    ) -> None:
        await self._transact(
            "set_lane_retention",
            lambda conn: set_lane_retention(conn, lane_id, retention, actor=actor),
        )

    async def trim_retention(
        self,
        trim: Trim,
        *,
        batch_size: int = 500,
        now: datetime | None = None,
        actor: str = SOMEBODY,
    ) -> int:
        check_actor(actor)

        async def forget(conn: Connection) -> int:
            forgotten = await trim_retention(conn, trim, batch_size=batch_size, now=now)
            if forgotten:
                await operator_event(
                    conn,
                    OperatorEventType.RETENTION_TRIMMED,
                    actor=actor,
                    reason=None,
                    lane_id=trim.lane_id,
                    retention_ms=milliseconds(trim.retention),
                    forgotten=forgotten,
                )
            return forgotten

        return await self._transact("trim_retention", forget)

    async def count_trimmable(self, trim: Trim, *, now: datetime | None = None) -> int:
        return await self._run("count_trimmable", lambda conn: count_trimmable(conn, trim, now=now))
