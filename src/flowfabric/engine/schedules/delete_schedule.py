"""A schedule and its ledger are deleted; its executions stay."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.engine.schedules.release_queued import release_held
from flowfabric.engine.schedules.schedule import lock_schedule, schedule_key
from flowfabric.states import OperatorEventType

DELETE_SCHEDULE: Final[LiteralString] = """
-- schedules.delete_schedule
WITH deleted AS (
    DELETE FROM ff.schedule
     WHERE (partition_key, namespace, name) = (%(partition_key)s, %(namespace)s, %(name)s)
)
DELETE FROM ff.schedule_fire
 WHERE (partition_key, namespace, name) = (%(partition_key)s, %(namespace)s, %(name)s)
"""


async def delete_schedule(
    conn: Connection,
    name: str,
    *,
    namespace: str = "default",
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
    partitions: int = 256,
) -> None:
    """The schedule is gone, with its history; needs a transaction.

    Its executions stay. Those that wait for their turn wait no longer, because nothing would tell
    them. Raises `NotFound`.
    """
    check_actor(actor)
    schedule = await lock_schedule(conn, namespace, name, partitions=partitions)
    if schedule.queued:
        await release_held(conn, schedule.latest)
    await execute(conn, DELETE_SCHEDULE, **schedule_key(namespace, name, partitions))
    await operator_event(
        conn,
        OperatorEventType.SCHEDULE_DELETED,
        actor=actor,
        reason=reason,
        namespace=namespace,
        schedule=name,
        spec=str(schedule.spec),
        execution_kind=schedule.execution_kind,
    )
