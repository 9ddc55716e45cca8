"""A worker process is deleted from the registry, because it stopped or an operator says so."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.operator_event import check_actor, operator_event
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered
from flowfabric.errors import invalid_input
from flowfabric.ids import check_text, check_worker_name, worker_partition
from flowfabric.states import OperatorEventType

MARK_WORKER_DEAD: Final[LiteralString] = """
-- workers.mark_worker_dead
WITH deleted AS (
    DELETE FROM ff.worker_registry
     WHERE (partition_key, namespace, worker_instance_id)
         = (%(partition_key)s, %(namespace)s, %(worker_instance_id)s)
 RETURNING partition_key, namespace, worker_instance_id, worker_id
), recorded AS (
    INSERT INTO ff.worker_registry_event (
           partition_key, namespace, worker_instance_id, event_at_ms, event_kind, worker_id, reason)
    SELECT partition_key, namespace, worker_instance_id, ff.now_ms(), 'marked_dead', worker_id,
           %(reason)s
      FROM deleted
        ON CONFLICT DO NOTHING
)
SELECT worker_id FROM deleted
"""

STOPPED: Final = "stopped"
"""The reason of a process that leaves the registry itself, in an orderly stop."""


class WorkerMarkedDead(msgspec.Struct, frozen=True):
    """The instance is not registered any more; its leases expire by themselves."""


class _Deleted(msgspec.Struct, frozen=True):
    worker_id: str


async def mark_worker_dead(
    conn: Connection,
    worker_instance_id: str,
    *,
    reason: str,
    namespace: str = "default",
    actor: str | None = None,
) -> WorkerMarkedDead | WorkerNotRegistered:
    """The instance is not registered any more; its leases stay until they expire.

    With an `actor`, who is then an operator and not the process itself, there is an operator event.
    """
    if actor is not None:
        check_actor(actor)
    check_worker_name(worker_instance_id, field="worker_instance_id")
    check_text(reason, field="reason")
    if not reason.isprintable():
        raise invalid_input("reason", reason, "must not hold control characters")
    row = await fetch_maybe(
        conn,
        MARK_WORKER_DEAD,
        _Deleted,
        partition_key=worker_partition(worker_instance_id),
        namespace=namespace,
        worker_instance_id=worker_instance_id,
        reason=reason,
    )
    if row is None:
        return WorkerNotRegistered()
    if actor is not None:
        await operator_event(
            conn,
            OperatorEventType.WORKER_MARKED_DEAD,
            actor=actor,
            reason=reason,
            namespace=namespace,
            worker_id=row.worker_id,
            worker_instance_id=worker_instance_id,
        )
    return WorkerMarkedDead()
