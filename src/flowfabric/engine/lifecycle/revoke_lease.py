"""active → runnable: an operator takes an execution away from whoever holds it."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.operator_event import SOMEBODY, check_actor, operator_event
from flowfabric.engine.lifecycle.sql.fence import LOCKED_COLUMNS
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import ExecutionId, parse_uuid
from flowfabric.states import OperatorEventType

REVOKE_LEASE: Final[LiteralString] = (
    f"""
-- lifecycle.revoke_lease
WITH seen AS (        -- the row, locked
    SELECT{LOCKED_COLUMNS}
      FROM ff.exec_core e
     WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
       FOR NO KEY UPDATE
)"""
    + requeue(
        "seen",
        where="""leased AND worker_instance_id = coalesce(%(holder)s, worker_instance_id)
       AND lease_id = coalesce(%(lease_id)s, lease_id)
       AND attempt_index = coalesce(%(attempt_index)s, attempt_index)
       AND lease_epoch = coalesce(%(alias_epoch)s, lease_epoch)
       AND lease_epoch = coalesce(%(lease_epoch)s, lease_epoch)""",
        attempt_outcome="'lease_revoked'",
        counts_as_lost="true",
        lease_reason="'operator'",
    )
    + """
SELECT seen.leased, seen.lease_id, seen.lease_epoch, seen.attempt_index, seen.worker_instance_id,
       EXISTS (SELECT FROM requeued) AS revoked
  FROM seen
"""
)

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


class _Meant(msgspec.Struct, frozen=True):
    """The lease that a caller means; what is None is not compared."""

    lease_id: UUID | None = None
    attempt_index: int | None = None
    alias_epoch: int | None = None


class _Seen(msgspec.Struct, frozen=True):
    leased: bool
    lease_id: UUID | None
    lease_epoch: int
    attempt_index: int
    worker_instance_id: str | None
    revoked: bool


async def revoke_lease(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    reason: str,
    actor: str = SOMEBODY,
    worker_instance_id: str = "",
    expected_lease_id: UUID | str = "",
    expected_lease_epoch: int | None = None,
) -> LeaseRevoked | LeaseNotRevoked:
    """The execution is claimable again and its holder's writes are refused; one event tells why.

    What is expected of the lease (holder, id, epoch) must fit, else the answer says what did not.
    The id may also be written `pg:<uuid of the execution>:<attempt_index>:<epoch>`. Raises
    `NotFound`.
    """
    check_actor(actor)
    meant = _meant(execution_id, expected_lease_id)
    seen = await fetch_maybe(
        conn,
        REVOKE_LEASE,
        _Seen,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        holder=worker_instance_id or None,
        lease_epoch=expected_lease_epoch,
        **msgspec.structs.asdict(meant),
    )
    if seen is None:
        raise NotFound("execution", execution_id)
    if not seen.revoked or seen.lease_id is None or seen.worker_instance_id is None:
        return LeaseNotRevoked(
            execution_id=execution_id, reason=_kept(seen, worker_instance_id, meant)
        )
    await operator_event(
        conn,
        OperatorEventType.LEASE_REVOKED,
        actor=actor,
        reason=reason,
        execution_id=execution_id,
        lease_id=str(seen.lease_id),
        worker_instance_id=seen.worker_instance_id,
        attempt_index=seen.attempt_index,
        old_lease_epoch=seen.lease_epoch,
        new_lease_epoch=seen.lease_epoch + 1,
    )
    return LeaseRevoked(
        execution_id=execution_id,
        lease_id=seen.lease_id,
        lease_epoch=seen.lease_epoch + 1,
        worker_instance_id=seen.worker_instance_id,
    )


def _meant(execution_id: ExecutionId, expected: UUID | str) -> _Meant:
    if isinstance(expected, UUID):
        return _Meant(lease_id=expected)
    if not expected:
        return _Meant()
    alias = _ALIAS.fullmatch(expected)
    if alias is None:
        return _Meant(lease_id=parse_uuid(expected, field="expected_lease_id"))
    if parse_uuid(alias[1], field="expected_lease_id", given=expected) != execution_id.uuid:
        raise invalid_input("expected_lease_id", expected, f"is not a lease of {execution_id}")
    return _Meant(attempt_index=int(alias[2]), alias_epoch=int(alias[3]))


def _kept(seen: _Seen, holder: str, meant: _Meant) -> NotRevokedReason:
    """The first that holds: no lease, another's, another one, a later one."""
    if not seen.leased:
        return NotRevokedReason.NO_ACTIVE_LEASE
    if holder and holder != seen.worker_instance_id:
        return NotRevokedReason.DIFFERENT_WORKER_INSTANCE_ID
    if (
        meant.lease_id not in (None, seen.lease_id)
        or meant.attempt_index not in (None, seen.attempt_index)
        or meant.alias_epoch not in (None, seen.lease_epoch)
    ):
        return NotRevokedReason.LEASE_ID_MISMATCH
    return NotRevokedReason.EPOCH_MOVED
