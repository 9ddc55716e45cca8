"""Which partitions a statement touches, as the planner sees it.

A scan of a table *carries the key* when its rows are picked by an equality of `partition_key`: with
a parameter, or with a row that was found before. Whatever starts without one spans partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import asyncpg
import msgspec

from flowfabric.db.rows import Connection, positional
from tests.walls.sources import bare

HOT = """
SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind = 'r' AND a.attname = 'partition_key'
"""
_TYPES = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'looked_at'"
_CONDITIONS = (
    "Index Cond",
    "Recheck Cond",
    "Filter",
    "Join Filter",
    "Hash Cond",
    "Merge Cond",
    "One-Time Filter",
)
_FOUND_IN = re.compile(
    r"\b(?:FROM|JOIN|USING|UPDATE)\s+ff\.(\w+)(?:\s+(?:AS\s+)?(?!(?:WHERE|ON|USING|SET|ORDER|JOIN)\b)(\w+))?",
    re.IGNORECASE,
)


class Touched(NamedTuple):
    """What one statement does with hot tables."""

    tables: frozenset[str]
    across: frozenset[str]
    """Where it starts without a key: `exec_core`, or `exec_core+flow_summary` if joined by key."""
    many: bool
    """Is it given many partitions at once?"""


async def touched(db: Connection, sql: str, hot: frozenset[str]) -> Touched | None:
    """What the statement touches by itself, not in the functions that it calls.

    None for one that has no plan.
    """
    text, names = positional(sql)
    try:
        await db.execute(f"PREPARE looked_at AS {text}")
    except asyncpg.PostgresSyntaxError:
        return None
    try:
        await db.execute("SET plan_cache_mode = force_generic_plan")
        nothing = f"({', '.join(['NULL'] * len(names))})" if names else ""
        [whole] = msgspec.json.decode(
            await db.fetchval(f"EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE looked_at {nothing}")
        )
        many = "smallint[]" in await db.fetchval(_TYPES)
    finally:
        await db.execute("DEALLOCATE looked_at")
    nodes = list(_nodes(whole["Plan"]))
    places = [node for node in nodes if node.get("Relation Name") in hot]
    scans = {node["Alias"]: node for node in places if node["Node Type"] != "ModifyTable"}
    linked = _linked(set(scans), [part for node in nodes for part in _conditions(node)])
    return Touched(
        frozenset(node["Relation Name"] for node in places),
        frozenset(
            "+".join(sorted({scans[alias]["Relation Name"] for alias in group}))
            for group in linked
            if group <= set(scans)
        ),
        many,
    )


def unkeyed_in_text(body: str, hot: frozenset[str]) -> set[str]:
    """Hot tables that the body of a function looks into without their `partition_key`."""
    text = bare(body)
    found: set[str] = set()
    for place in _FOUND_IN.finditer(text):
        table, alias = place[1], place[2] or place[1]
        rest = text[place.end() :].partition(";")[0]
        keyed = re.search(
            rf"\b{alias}\.partition_key\b[^;]*?\) (?:=|IN) |\b{alias}\.partition_key = "
            rf"|= {alias}\.partition_key\b|^ USING \(partition_key, ",
            rest,
        )
        if table in hot and keyed is None:
            found.add(table)
    return found


def conjuncts(condition: str) -> list[str]:
    """The parts of a condition that must all hold."""
    text = condition.strip()
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1].strip()
    parts, depth, begin, quoted = list[str](), 0, 0, False
    for at, char in enumerate(text):
        if char == "'":
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth == 0 and text.startswith(" AND ", at):
                parts.append(text[begin:at])
                begin = at + len(" AND ")
    if not parts:
        return [text]
    return [each for part in [*parts, text[begin:]] for each in conjuncts(part)]


def _closing(text: str) -> int:
    """Where the bracket that the text begins with is closed."""
    depth, quoted = 0, False
    for at, char in enumerate(text):
        if char == "'":
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth == 0:
                return at
    return -1


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _conditions(node: dict[str, Any]) -> Iterator[str]:
    for kind in _CONDITIONS:
        yield from conjuncts(node.get(kind, ""))


def _linked(scans: set[str], conditions: Sequence[str]) -> list[set[str]]:
    """The scans, together where their keys are equal, also with what is no scan but given."""
    groups = [{alias} for alias in scans]
    for part in conditions:
        sides = part.split(" = ")
        ends = [side.removesuffix(".partition_key") for side in sides]
        mine = [
            side.endswith(".partition_key") and end in scans
            for side, end in zip(sides, ends, strict=True)
        ]
        if len(sides) != 2 or not any(mine):
            continue
        joined = {end if own else "given" for end, own in zip(ends, mine, strict=True)}
        apart = [group for group in groups if not group & joined]
        groups = [*apart, joined.union(*(group for group in groups if group & joined))]
    return groups
