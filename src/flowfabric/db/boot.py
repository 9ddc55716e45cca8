"""Checks before a process serves: the version of the schema and the partition counts."""

from __future__ import annotations

import logging
from typing import Final, LiteralString

import msgspec

from flowfabric.config import PartitionConfig
from flowfabric.db.migrate import Applied, applied, needed_version
from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import Unavailable

log: Final = logging.getLogger("flowfabric.boot")

# A statement of its own, which a role that may only read can run.
PARTITIONS: Final[LiteralString] = """
-- db.boot: the stored counts
SELECT num_flow_partitions, num_budget_partitions, num_quota_partitions FROM ff.partition_config
"""

STORE_PARTITIONS: Final[LiteralString] = """
-- db.boot: store these counts if none are stored
INSERT INTO ff.partition_config AS c (num_flow_partitions, num_budget_partitions,
                                      num_quota_partitions, version)
VALUES (%(flow)s, %(budget)s, %(quota)s, '1')
    ON CONFLICT DO NOTHING
 RETURNING c.num_flow_partitions, c.num_budget_partitions, c.num_quota_partitions
"""


class _Counts(msgspec.Struct, frozen=True):
    num_flow_partitions: int
    num_budget_partitions: int
    num_quota_partitions: int


async def check(conn: Connection, partitions: PartitionConfig) -> None:
    """Raise `Unavailable` unless schema version and partition counts fit this process."""
    check_version(await applied(conn), needed_version())
    stored = await _stored_counts(conn, partitions)
    for field in _Counts.__struct_fields__:
        here, in_database = getattr(partitions, field), getattr(stored, field)
        if here != in_database:
            raise Unavailable(
                "partition_config", f"{field} is {here} here but {in_database} in the database"
            )


async def _stored_counts(conn: Connection, partitions: PartitionConfig) -> _Counts:
    """The counts in the database; stores those of this process if there are none."""
    while True:
        stored = await fetch_maybe(conn, PARTITIONS, _Counts)
        if stored is None:
            stored = await fetch_maybe(
                conn,
                STORE_PARTITIONS,
                _Counts,
                flow=partitions.num_flow_partitions,
                budget=partitions.num_budget_partitions,
                quota=partitions.num_quota_partitions,
            )
        # None: another process stored its counts at the same time; the next statement sees them.
        if stored is not None:
            return stored


def check_version(ledger: list[Applied], needed: int) -> None:
    """Raise `Unavailable` if the schema is missing, older, or newer and not compatible."""
    if not ledger:
        raise Unavailable("schema_version", "the schema is not there yet; run: ff migrate")
    newest = ledger[-1].version
    if newest < needed:
        raise Unavailable(
            "schema_version",
            f"the schema is at version {newest}, this code needs {needed}; run: ff migrate",
        )
    newer = [row for row in ledger if row.version > needed]
    breaking = [row for row in newer if not row.backward_compatible]
    if breaking:
        raise Unavailable(
            "schema_version",
            f"migration {breaking[0].version:04d}_{breaking[0].name} is newer than this code "
            f"(made for version {needed}) and not backward compatible; upgrade flowfabric",
        )
    if newer:
        log.warning("the schema is at version %s, newer than this code's %s", newest, needed)
