"""A schedule remembers executions that were created for it out of turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.schedules.overlap import OpenExecution, kept_latest
from flowfabric.engine.schedules.schedule import StoredSchedule
from flowfabric.ids import ExecutionId

ADD_LATEST: Final[LiteralString] = """
-- schedules.add_latest
UPDATE ff.schedule s
   SET latest_partitions = %(latest_partitions)s::smallint[], latest_ids = %(latest_ids)s::uuid[],
       queued = s.queued OR %(queues)s, fired = s.fired + %(fired)s, revision = s.revision + 1
 WHERE (s.partition_key, s.namespace, s.name) = (%(partition_key)s, %(namespace)s, %(name)s)
"""


async def add_latest(
    conn: Connection,
    schedule: StoredSchedule,
    added: Sequence[ExecutionId],
    running: Sequence[OpenExecution],
    *,
    fired: int = 0,
) -> None:
    """The last executions of the locked schedule are these too, of which `running` have not ended.

    `fired` of its instants became executions by that.

    Its revision is another one, so that a firing that has read it before is computed again.
    """
    latest = kept_latest([*schedule.latest, *added], running)
    await execute(
        conn,
        ADD_LATEST,
        partition_key=schedule.partition_key,
        namespace=schedule.namespace,
        name=schedule.name,
        latest_partitions=[each.partition_key for each in latest],
        latest_ids=[each.uuid for each in latest],
        queues=any(each.held for each in running),
        fired=fired,
    )
