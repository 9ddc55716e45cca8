"""The partition counts of a database: `ff migrate` stores them, and processes compare theirs."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.config import PartitionConfig
from flowfabric.db.rows import Connection, fetch_maybe

# A statement of its own, which a role that may only read can run.
PARTITIONS: Final[LiteralString] = """
-- db.store_counts: the stored counts
SELECT num_flow_partitions, num_budget_partitions, num_quota_partitions FROM ff.partition_config
"""

STORE_PARTITIONS: Final[LiteralString] = """
-- db.store_counts: store these counts if none are stored
INSERT INTO ff.partition_config AS c (num_flow_partitions, num_budget_partitions,
                                      num_quota_partitions, version)
VALUES (%(flow)s, %(budget)s, %(quota)s, '1')
    ON CONFLICT DO NOTHING
 RETURNING c.num_flow_partitions, c.num_budget_partitions, c.num_quota_partitions
"""


class PartitionCounts(msgspec.Struct, frozen=True):
    """The row of `ff.partition_config`."""

    num_flow_partitions: int
    num_budget_partitions: int
    num_quota_partitions: int


async def store_counts(conn: Connection, partitions: PartitionConfig) -> PartitionCounts:
    """The counts in the database; stores those of this process if there are none."""
    while True:
        stored = await fetch_maybe(conn, PARTITIONS, PartitionCounts)
        if stored is None:
            stored = await fetch_maybe(
                conn,
                STORE_PARTITIONS,
                PartitionCounts,
                flow=partitions.num_flow_partitions,
                budget=partitions.num_budget_partitions,
                quota=partitions.num_quota_partitions,
            )
        # None: another process stored its counts at the same time; the next statement sees them.
        if stored is not None:
            return stored
