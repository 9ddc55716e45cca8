"""Operator controls of a client; each change is recorded with its actor."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from flowfabric.app.codec import encode_untyped
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
    """Operator controls of one client; `actor` is recorded with every change."""

    def __init__(self, client: Client, actor: str) -> None:
        self._client, self._engine = client, client.engine
        self.actor = actor

    async def revoke_lease(
        self, execution_id: ExecutionId | str, reason: str, *, worker_instance_id: str = ""
    ) -> LeaseRevoked | LeaseNotRevoked:
        """Revoke the lease of an execution; another worker may claim the execution at once."""
        return await self._engine.revoke_lease(
            self._client.parse(execution_id),
            reason=reason,
            actor=self.actor,
            worker_instance_id=worker_instance_id,
        )

    async def complete(
        self, execution_id: ExecutionId | str, result: object = None, *, reason: str | None = None
    ) -> None:
        """End a running execution with this result in place of its worker; may be repeated.

        Raises `ExecutionNotActive` unless a worker holds the execution.
        """
        stored, encoding = encode_untyped(result)
        await self._engine.override_complete(
            self._client.parse(execution_id),
            result=stored,
            encoding=encoding,
            reason=reason,
            actor=self.actor,
        )

    async def fail(self, execution_id: ExecutionId | str, reason: str) -> None:
        """Fail a running execution in place of its worker, without a retry; may be repeated.

        Raises `ExecutionNotActive` unless a worker holds the execution.
        """
        await self._engine.override_fail(
            self._client.parse(execution_id), reason=reason, actor=self.actor
        )

    async def delay(
        self,
        execution_id: ExecutionId | str,
        delay: float | timedelta,
        *,
        reason: str | None = None,
    ) -> None:
        """Take a running execution away from its worker; it is claimable again after `delay`.

        Raises `ExecutionNotActive` unless a worker holds the execution.
        """
        await self._engine.override_delay(
            self._client.parse(execution_id), delay=delay, reason=reason, actor=self.actor
        )

    async def set_priority(
        self, execution_id: ExecutionId | str, priority: int, *, reason: str | None = None
    ) -> int:
        """Change the priority; the new one, clamped to 0 … 9000. Raises `ExecutionNotEligible`."""
        changed = await self._engine.change_priority(
            self._client.parse(execution_id), priority, actor=self.actor, reason=reason
        )
        return changed.priority

    async def lanes(self) -> list[LaneCount]:
        """Every lane with its state and the numbers of its unfinished executions."""
        return await self._engine.count_by_lane()

    async def pause_lane(self, lane: str, *, reason: str | None = None) -> LaneChanged:
        """The lane starts nothing; submits are accepted."""
        return await self._set_lane(lane, LaneState.PAUSED, reason)

    async def resume_lane(self, lane: str, *, reason: str | None = None) -> LaneChanged:
        """Make the lane active, whatever its state was."""
        return await self._set_lane(lane, LaneState.ACTIVE, reason)

    async def drain_lane(self, lane: str, *, reason: str | None = None) -> LaneChanged:
        """Submits and replays are refused; the lane runs what it has until it is empty."""
        return await self._set_lane(lane, LaneState.DRAINING, reason)

    async def disable_lane(self, lane: str, *, reason: str | None = None) -> LaneChanged:
        """The lane starts nothing and refuses submits and replays, until it is resumed."""
        return await self._set_lane(lane, LaneState.DISABLED, reason)

    async def keep(self, lane: str, retention: float | timedelta | None) -> None:
        """Keep ended executions of the lane this long: 0 for ever, None for the default."""
        await self._engine.set_lane_retention(lane, retention, actor=self.actor)

    async def trim(self, trim: Trim) -> int:
        """Delete executions that ended long ago, now; returns how many."""
        deleted = 0
        while batch := await self._engine.trim_retention(trim, actor=self.actor):
            deleted += batch
        return deleted

    async def list_workers(self, *, after: str | None = None, limit: int = 1000) -> WorkerPage:
        """The worker processes of this client's namespace."""
        return await self._engine.list_workers(self._client.namespace, after=after, limit=limit)

    async def expired_leases(
        self, *, after: ExpiredLeaseCursor | None = None, limit: int = 1000
    ) -> ExpiredLeasePage:
        """Expired leases of this client's namespace that no sweep has reclaimed yet."""
        return await self._engine.list_expired_leases(
            namespace=self._client.namespace, after=after, limit=limit
        )

    async def rotate_secret(
        self, kid: str, secret_hex: str, *, grace: float | timedelta = timedelta(hours=24)
    ) -> KeyRotated | KeyUnchanged:
        """Sign grants and tokens with a new key; the old key verifies for another `grace`."""
        [answer] = await self._engine.rotate_waitpoint_hmac_secret_all(
            kid, secret_hex, grace, actor=self.actor
        )
        return answer.result

    async def _set_lane(self, lane: str, state: LaneState, reason: str | None) -> LaneChanged:
        return await self._engine.set_lane_state(lane, state, actor=self.actor, reason=reason)
