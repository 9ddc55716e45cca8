"""What statements cost: a connection that explains each statement before it runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec

from flowfabric.db.faults import statement_name
from flowfabric.db.rows import Connection

_WHOLE_READS = """
SELECT relname, seq_scan FROM pg_stat_xact_user_tables WHERE schemaname = 'ff' AND seq_scan > 0
"""


class Cost(msgspec.Struct, frozen=True):
    """How many buffers one statement touched, all its functions included, and rows it looked at."""

    statement: str
    buffers: int
    rows: int
    """Rows that its nodes passed on or filtered away; a materialised row costs no buffer."""


class Explained:
    """Passes statements on; each is first explained and undone, the second time counts.

    With `generic` it is planned as it is for any parameters, otherwise for those that it has.
    """

    def __init__(self, conn: Connection, *, generic: bool) -> None:
        self._conn, self.generic = conn, generic
        self.costs: list[Cost] = []

    async def fetch(self, sql: str, *params: object) -> Any:
        await self._explain(sql, params)
        return await self._conn.fetch(sql, *params)

    async def execute(self, sql: str, *params: object) -> Any:
        await self._explain(sql, params)
        return await self._conn.execute(sql, *params)

    def transaction(self) -> Any:
        return self._conn.transaction()

    def is_in_transaction(self) -> bool:
        return self._conn.is_in_transaction()

    async def _explain(self, sql: str, params: Sequence[object]) -> None:
        mode = "force_generic_plan" if self.generic else "force_custom_plan"
        given = f"({', '.join(map(literal, params))})" if params else ""
        await self._conn.execute(f"SET plan_cache_mode = {mode}; PREPARE explained AS {sql}")
        for _ in range(2):
            undone = self._conn.transaction()
            await undone.start()
            [whole] = msgspec.json.decode(
                await self._conn.fetchval(
                    f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained {given}"
                )
            )
            await undone.rollback()
        await self._conn.execute("DEALLOCATE explained; RESET plan_cache_mode")
        plan = whole["Plan"]
        self.costs.append(Cost(statement_name(sql), buffers(plan), rows(plan)))


async def whole_reads(conn: Connection) -> dict[str, int]:
    """How often this connection has read a table from end to end, in functions too."""
    return {row["relname"]: row["seq_scan"] for row in await conn.fetch(_WHOLE_READS)}


def buffers(plan: dict[str, Any]) -> int:
    """Buffers of the whole statement: the top node, and the CTEs that run only after it."""
    nodes = list(_nodes(plan))
    read = {f"CTE {node['CTE Name']}" for node in nodes if node["Node Type"] == "CTE Scan"}
    after = [
        node
        for node in nodes
        if node.get("Parent Relationship") == "InitPlan"
        and node["Subplan Name"].startswith("CTE ")
        and node["Subplan Name"] not in read
    ]
    return sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in [plan, *after])


def rows(plan: dict[str, Any]) -> int:
    """Rows that the nodes of the statement passed on or filtered away, in all their loops."""
    counted = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
    return sum(
        round(node["Actual Loops"] * sum(node.get(each, 0) for each in counted))
        for node in _nodes(plan)
    )


def literal(value: object) -> str:
    """The value as SQL text; its type is that of the parameter."""
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return f"'{value}'"
        case bytes():
            return f"'\\x{value.hex()}'"
        case str() | UUID():
            return "'" + str(value).replace("'", "''") + "'"
        case list() | tuple():
            parts = ("NULL" if each is None else f'"{each}"' for each in value)
            return f"'{{{','.join(parts)}}}'"
        case _:
            raise TypeError(f"no literal for {value!r}")


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)
