"""What an operator does to executions and lanes; each call leaves an operator event."""

from __future__ import annotations

from uuid import UUID

from flowfabric.engine.facade.base import Base
from flowfabric.engine.lifecycle.cancel import Cancelled
from flowfabric.engine.lifecycle.cancel_execution import OPERATOR, cancel_execution
from flowfabric.ids import ExecutionId


class Controls(Base):
    """Serializable, with the one retry wrapper."""

    async def cancel_execution(
        self,
        execution_id: ExecutionId,
        *,
        reason: str,
        source: str = OPERATOR,
        lease_epoch: int | None = None,
        lease_id: UUID | None = None,
    ) -> Cancelled:
        return await self._control(
            "cancel_execution",
            lambda conn: cancel_execution(
                conn,
                execution_id,
                reason=reason,
                source=source,
                lease_epoch=lease_epoch,
                lease_id=lease_id,
            ),
        )
