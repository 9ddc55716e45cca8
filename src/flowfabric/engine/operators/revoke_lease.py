"""active → runnable: an operator takes executions away from their holders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.lock_executions import LockedExecution
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.engine.lifecycle.revoke import revoke
from flowfabric.engine.operators.control import control, only
from flowfabric.errors import EngineError, ValidationError, invalid_input
from flowfabric.ids import ExecutionId, parse_uuid
from flowfabric.states import LifecyclePhase, OperatorEventType

_ALIAS: Final = re.compile(r"pg:([0-9a-fA-F-]{36}):([0-9]{1,9}):([0-9]{1,18})")


class NotRevokedReason(StrEnum):
    """Why there was nothing to revoke."""

    NO_ACTIVE_LEASE = "no_active_lease"
    DIFFERENT_WORKER_INSTANCE_ID = "different_worker_instance_id"
    LEASE_ID_MISMATCH = "lease_id_mismatch"
    EPOCH_MOVED = "epoch_moved"


class LeaseRevoked(msgspec.Struct, frozen=True, kw_only=True):
    """The lease is void and the execution claimable; `lease_epoch` is the new one."""

    execution_id: ExecutionId
    lease_id: UUID
    lease_epoch: int
    worker_instance_id: str


class LeaseNotRevoked(msgspec.Struct, frozen=True, kw_only=True):
    """The lease that was meant is not held; nothing changed."""

    execution_id: ExecutionId
    reason: NotRevokedReason


class _Expected(msgspec.Struct, frozen=True, kw_only=True):
    """The leases that a caller means; what is None is not compared."""

    worker_instance_id: str | None = None
    lease_id: UUID | None = None
    execution: UUID | None = None
    attempt_index: int | None = None
    alias_epoch: int | None = None
    lease_epoch: int | None = None
    written: str = ""

    def may_be_of(self, execution_id: ExecutionId) -> bool:
        return self.execution in (None, execution_id.uuid)

    def of_another(self, execution_id: ExecutionId) -> ValidationError:
        return invalid_input("expected_lease_id", self.written, f"is not a lease of {execution_id}")

    def decide(self, seen: LockedExecution) -> LeaseNotRevoked | ValidationError | None:
        if not self.may_be_of(seen.id):
            return self.of_another(seen.id)
        kept = self._kept(seen)
        return None if kept is None else LeaseNotRevoked(execution_id=seen.id, reason=kept)

    def _kept(self, seen: LockedExecution) -> NotRevokedReason | None:
        """The first that holds: no lease, another's, another one, a later one."""
        if seen.lifecycle_phase != LifecyclePhase.ACTIVE:
            return NotRevokedReason.NO_ACTIVE_LEASE
        if self.worker_instance_id not in (None, seen.worker_instance_id):
            return NotRevokedReason.DIFFERENT_WORKER_INSTANCE_ID
        if (
            self.lease_id not in (None, seen.lease_id)
            or self.attempt_index not in (None, seen.attempt_index)
            or self.alias_epoch not in (None, seen.lease_epoch)
        ):
            return NotRevokedReason.LEASE_ID_MISMATCH
        if self.lease_epoch not in (None, seen.lease_epoch):
            return NotRevokedReason.EPOCH_MOVED
        return None


async def revoke_lease(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    reason: str,
    actor: str = DEFAULT_ACTOR,
    worker_instance_id: str = "",
    expected_lease_id: UUID | str = "",
    expected_lease_epoch: int | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> LeaseRevoked | LeaseNotRevoked:
    """The execution is claimable again and its holder's writes are refused; needs a transaction.

    One operator event records why. What is expected of the lease (holder, id, epoch) must fit,
    else the answer says what did not. The id may also be written
    `pg:<uuid of the execution>:<attempt_index>:<epoch>`. Raises `NotFound`, and
    `ValidationError(invalid_input)` for the id of another execution's lease.
    """
    return only(
        await revoke_leases(
            conn,
            [execution_id],
            reason=reason,
            actor=actor,
            worker_instance_id=worker_instance_id,
            expected_lease_id=expected_lease_id,
            expected_lease_epoch=expected_lease_epoch,
            expected_last_mutation_at=expected_last_mutation_at,
            namespaces=namespaces,
        )
    )


async def revoke_leases(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    reason: str,
    actor: str = DEFAULT_ACTOR,
    worker_instance_id: str = "",
    expected_lease_id: UUID | str = "",
    expected_lease_epoch: int | None = None,
    expected_last_mutation_at: datetime | None = None,
    namespaces: Sequence[str] | None = None,
) -> list[LeaseRevoked | LeaseNotRevoked | EngineError]:
    """As `revoke_lease` for at most 1,000 executions, with what that raises as answers.

    The executions that one call claimed share their lease id. The answers come in the order given.
    Raises `ValidationError` for arguments that cannot be.
    """
    check_actor(actor)
    expected = _expected(worker_instance_id, expected_lease_id, expected_lease_epoch)
    if executions and not any(map(expected.may_be_of, executions)):
        raise expected.of_another(executions[0])

    async def change(
        changing: list[LockedExecution],
    ) -> dict[ExecutionId, LeaseRevoked | LeaseNotRevoked]:
        await revoke(conn, [each.id for each in changing])
        await operator_events(
            conn,
            OperatorEventType.LEASE_REVOKED,
            {each.id: _facts(each) for each in changing},
            actor=actor,
            reason=reason,
        )
        return {each.id: _revoked(each) for each in changing}

    return await control(
        conn,
        executions,
        decide=expected.decide,
        change=change,
        seen_at=expected_last_mutation_at,
        namespaces=namespaces,
    )


def _expected(worker: str, lease: UUID | str, epoch: int | None) -> _Expected:
    expected = _Expected(worker_instance_id=worker or None, lease_epoch=epoch)
    if isinstance(lease, UUID):
        return msgspec.structs.replace(expected, lease_id=lease)
    if not lease:
        return expected
    alias = _ALIAS.fullmatch(lease)
    if alias is None:
        lease_id = parse_uuid(lease, field="expected_lease_id")
        return msgspec.structs.replace(expected, lease_id=lease_id)
    return msgspec.structs.replace(
        expected,
        execution=parse_uuid(alias[1], field="expected_lease_id", given=lease),
        attempt_index=int(alias[2]),
        alias_epoch=int(alias[3]),
        written=lease,
    )


def _facts(seen: LockedExecution) -> dict[str, object]:
    return {
        "lease_id": str(seen.lease_id),
        "worker_instance_id": seen.worker_instance_id,
        "attempt_index": seen.attempt_index,
        "old_lease_epoch": seen.lease_epoch,
        "new_lease_epoch": seen.lease_epoch + 1,
    }


def _revoked(seen: LockedExecution) -> LeaseRevoked:
    assert seen.lease_id is not None
    assert seen.worker_instance_id is not None
    return LeaseRevoked(
        execution_id=seen.id,
        lease_id=seen.lease_id,
        lease_epoch=seen.lease_epoch + 1,
        worker_instance_id=seen.worker_instance_id,
    )
