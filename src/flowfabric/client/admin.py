"""Operator controls of a client; each change is recorded with its actor."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from flowfabric.app.codec import encode_untyped
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, as_uuid
from flowfabric.states import LaneState
from flowfabric.states.waits import PROACTIVE_CLOSE
from flowfabric.tokens import WaitpointToken

if TYPE_CHECKING:
    from flowfabric.client.client import Client
    from flowfabric.engine.executions.list_expired_leases import (
        ExpiredLeaseCursor,
        ExpiredLeasePage,
    )
    from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import KeyRotated, KeyUnchanged
    from flowfabric.engine.lanes.count_by_lane import LaneCount
    from flowfabric.engine.lanes.set_lane_state import LaneChanged
    from flowfabric.engine.operators.resume_execution import Resumed
    from flowfabric.engine.operators.revoke_lease import LeaseNotRevoked, LeaseRevoked
    from flowfabric.engine.operators.wake_execution import Woken
    from flowfabric.engine.retention.trim import Trim
    from flowfabric.engine.suspensions.close_waitpoint import ClosedWaitpoint
    from flowfabric.engine.suspensions.list_open_waitpoints import OpenWaitpointPage
    from flowfabric.engine.suspensions.send_signal import SignalAnswer
    from flowfabric.engine.workers.list_workers import WorkerPage


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

    async def resume(
        self,
        execution_id: ExecutionId | str,
        *,
        delay: float | timedelta = 0,
        reason: str | None = None,
    ) -> Resumed:
        """Let a suspended execution go on; a handler that still has to wait waits again.

        Raises `NotFound`, and `ExecutionNotSuspended`.
        """
        return await self._engine.resume_execution(
            self._client.parse(execution_id), delay=delay, actor=self.actor, reason=reason
        )

    async def wake(
        self, execution_id: ExecutionId | str, *, skip: bool = False, reason: str | None = None
    ) -> Woken:
        """Make a delayed execution claimable now; with `skip` the sleep of its handler is over.

        Without `skip`, a handler whose sleep is not due sleeps on. Raises `NotFound`, also for
        `skip` without a sleep, and `ExecutionNotEligible` unless the execution is delayed.
        """
        return await self._engine.wake_execution(
            self._client.parse(execution_id), skip=skip, actor=self.actor, reason=reason
        )

    async def waitpoints(
        self, *, lane: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> OpenWaitpointPage:
        """The open waitpoints of this client's namespace, newest first, without their tokens."""
        return await self._engine.list_open_waitpoints(
            namespace=self._client.namespace, lane_id=lane, cursor=cursor, limit=limit
        )

    async def waitpoint_token(
        self, execution_id: ExecutionId | str, waitpoint_id: UUID | str
    ) -> WaitpointToken:
        """The token by which an outsider signals an open waitpoint; `reveal()` shows it.

        Raises `NotFound` if the execution has no such waitpoint, or it is closed.
        """
        wanted = as_uuid(waitpoint_id, field="waitpoint_id")
        token = await self._engine.read_waitpoint_token(self._client.parse(execution_id), wanted)
        if token is None:
            raise NotFound("waitpoint", wanted)
        return token

    async def approve(
        self,
        execution_id: ExecutionId | str,
        waitpoint_id: UUID | str,
        *,
        name: str = "approved",
        idempotency_key: str | None = None,
    ) -> SignalAnswer:
        """Signal a waitpoint as an operator, without its token; `actor` is the source.

        An actor that sends the same name twice is a `duplicate`, unless `idempotency_key` differs.
        Raises as `Client.signal`, and `NotFound` for the waitpoint.
        """
        return await self._deliver(execution_id, waitpoint_id, name, idempotency_key)

    async def deny(
        self,
        execution_id: ExecutionId | str,
        waitpoint_id: UUID | str,
        *,
        name: str = "rejected",
        idempotency_key: str | None = None,
    ) -> SignalAnswer:
        """As `approve`, with the signal `rejected`."""
        return await self._deliver(execution_id, waitpoint_id, name, idempotency_key)

    async def close_waitpoint(
        self,
        execution_id: ExecutionId | str,
        waitpoint_id: UUID | str,
        *,
        reason: str = PROACTIVE_CLOSE,
    ) -> ClosedWaitpoint:
        """Close a waitpoint: it takes no more signals; may be repeated.

        A handler that waits for it goes on, and learns the reason. Raises `NotFound` if the
        execution has no such waitpoint.
        """
        return await self._engine.close_waitpoint(
            self._client.parse(execution_id),
            as_uuid(waitpoint_id, field="waitpoint_id"),
            reason=reason,
            actor=self.actor,
        )

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

    async def _deliver(
        self,
        execution_id: ExecutionId | str,
        waitpoint_id: UUID | str,
        name: str,
        idempotency_key: str | None,
    ) -> SignalAnswer:
        target = self._client.handle(execution_id)
        return await self._engine.deliver_approval_signal(
            target.execution_id,
            as_uuid(waitpoint_id, field="waitpoint_id"),
            name,
            lane_id=(await target.describe()).lane_id,
            idempotency_suffix=(idempotency_key or self.actor)[:100],
            operator_identity=self.actor,
        )
