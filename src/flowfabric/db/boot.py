"""Checks before a process serves: the version of the schema and the partition counts."""

from __future__ import annotations

import logging
from typing import Final

from flowfabric.config import PartitionConfig
from flowfabric.db.migrate import Applied, applied, needed_version
from flowfabric.db.rows import Connection
from flowfabric.db.store_counts import PartitionCounts, store_counts
from flowfabric.errors import Unavailable

log: Final = logging.getLogger("flowfabric.boot")


async def check(conn: Connection, partitions: PartitionConfig) -> None:
    """Raise `Unavailable` unless schema version and partition counts fit this process."""
    check_version(await applied(conn), needed_version())
    stored = await store_counts(conn, partitions)
    for field in PartitionCounts.__struct_fields__:
        here, in_database = getattr(partitions, field), getattr(stored, field)
        if here != in_database:
            raise Unavailable(
                "partition_config", f"{field} is {here} here but {in_database} in the database"
            )


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
