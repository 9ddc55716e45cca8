"""What operators do, under names of every day; each change is kept with who did it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from flowfabric.engine.executions.list_expired_leases import ExpiredLeaseCursor, ExpiredLeasePage
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import KeyRotated, KeyUnchanged
from flowfabric.engine.lanes.count_by_lane import LaneCount
from flowfabric.engine.lanes.set_lane_state import LaneChanged
from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked, LeaseRevoked
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.workers.list_workers import WorkerPage
from flowfabric.ids import ExecutionId
from flowfabric.states import LaneState

if TYPE_CHECKING:
    from flowfabric.client.client import Client


class Admin:
    """Operator controls of one client; `actor` is kept with every change."""

    def __init__(self, client: Client, actor: str) -> None:
        self._client, self._engine = client, client.engine
        self.actor = actor

    async def revoke_lease(
        self, execution_id: ExecutionId | str, reason: str, *, worker_instance_id: str = ""
    ) -> LeaseRevoked | LeaseNotRevoked:
        """Take an execution away from whoever holds it; another worker may claim it at once."""
        return await self._engine.revoke_lease(
            self._client.parse(execution_id),
            reason=reason,
            actor=self.actor,
            worker_instance_id=worker_instance_id,
        )

    async def set_priority(
        self, execution_id: ExecutionId | str, priority: int, *, reason: str | None = None
    ) -> int:
        """The priority it has now, within 0 … 9000; raises `ExecutionNotEligible`."""
        changed = await self._engine.change_priority(
            self._client.parse(execution_id), priority, actor=self.actor, reason=reason
        )
        return changed.priority

    async def lanes(self) -> list[LaneCount]:
        """Every lane with its state and what is open on it."""
        return await self._engine.count_by_lane()

    async def pause_lane(self, lane: str, *, reason: str | None = None) -> LaneChanged:
        """Start nothing on the lane; it takes new work."""
        return await self._set_lane(lane, LaneState.PAUSED, reason)

    async def resume_lane(self, lane: str, *, reason: str | None = None) -> LaneChanged:
        """Make the lane active again, whatever it was."""
        return await self._set_lane(lane, LaneState.ACTIVE, reason)

    async def drain_lane(self, lane: str, *, reason: str | None = None) -> LaneChanged:
        """Take no new work and start nothing; what runs may end."""
        return await self._set_lane(lane, LaneState.DRAINING, reason)

    async def disable_lane(self, lane: str, *, reason: str | None = None) -> LaneChanged:
        """Take the lane out of service."""
        return await self._set_lane(lane, LaneState.DISABLED, reason)

    async def keep(self, lane: str, retention: float | timedelta | None) -> None:
        """For how long the lane keeps what has ended: 0 for ever, None the default."""
        await self._engine.set_lane_retention(lane, retention, actor=self.actor)

    async def trim(self, trim: Trim) -> int:
        """Forget what ended long ago, now; how many it were."""
        forgotten = 0
        while moved := await self._engine.trim_retention(trim, actor=self.actor):
            forgotten += moved
        return forgotten

    async def list_workers(self, *, after: str | None = None, limit: int = 1000) -> WorkerPage:
        """The worker processes of this client's namespace."""
        return await self._engine.list_workers(self._client.namespace, after=after, limit=limit)

    async def expired_leases(
        self, *, after: ExpiredLeaseCursor | None = None, limit: int = 1000
    ) -> ExpiredLeasePage:
        """Leases of this client's namespace that ran out and were not taken back yet."""
        return await self._engine.list_expired_leases(
            namespace=self._client.namespace, after=after, limit=limit
        )

    async def rotate_secret(
        self, kid: str, secret_hex: str, *, grace: float | timedelta = timedelta(hours=24)
    ) -> KeyRotated | KeyUnchanged:
        """Sign grants and tokens with a new key; the old one verifies for `grace` more."""
        [answer] = await self._engine.rotate_waitpoint_hmac_secret_all(
            kid, secret_hex, grace, actor=self.actor
        )
        return answer.result

    async def _set_lane(self, lane: str, state: LaneState, reason: str | None) -> LaneChanged:
        return await self._engine.set_lane_state(lane, state, actor=self.actor, reason=reason)
