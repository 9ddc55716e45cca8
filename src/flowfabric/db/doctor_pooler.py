"""The checks of `ff doctor` for a database that is reached through a pooler."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.finding import Finding, Verdict
from flowfabric.db.rows import Connection, fetch_all

PLANNER: Final[LiteralString] = """
-- db.doctor_pooler: planner settings that a connection through the pooler lacks
SELECT name FROM unnest(ARRAY['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin']) AS name
 WHERE current_setting(name) <> 'off'
"""


class _Setting(msgspec.Struct, frozen=True):
    name: str


async def behind_pooler(conn: Connection) -> list[Finding]:
    """How processes are woken there, and whether their statements lock rows in one order."""
    polling = Finding(check="wake-ups", verdict=Verdict.OK, found="polling, behind a pooler")
    missing = [row.name for row in await fetch_all(conn, PLANNER, _Setting)]
    if not missing:
        return [
            polling,
            Finding(check="plans", verdict=Verdict.OK, found="the role has our settings"),
        ]
    on = Finding(
        check="plans",
        verdict=Verdict.WARN,
        found=f"{', '.join(missing)}: on",
        advice=f"Statements may lock rows in any order, and deadlocks cost time: "
        f"ALTER ROLE ... SET {missing[0]} = off, and so on; see docs/operations.md, poolers.",
    )
    return [polling, on]
