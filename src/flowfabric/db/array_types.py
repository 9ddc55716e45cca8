"""The array types of our parameters, as the driver wants to know them.

The driver knows the scalar types of Postgres and asks each server, on each connection, about every
other type that a statement has. Our statements have arrays, and that query is dearer than most of
ours: a fleet that starts would spend much of its first second on it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

ARRAY_TYPES: Final = {
    1000: ("_bool", 16),
    1001: ("_bytea", 17),
    1005: ("_int2", 21),
    1007: ("_int4", 23),
    1009: ("_text", 25),
    1016: ("_int8", 20),
    1022: ("_float8", 701),
    1185: ("_timestamptz", 1184),
    2951: ("_uuid", 2950),
    3807: ("_jsonb", 3802),
}
"""By their object ids, which are the same in every Postgres: the name, and the id of an element."""


class KnownTypes:
    """Stands for the statement that the driver would have asked; it was not sent."""

    name: Final = "known"


def array_types(oids: Collection[int]) -> list[dict[str, Any]] | None:
    """The rows that the server would answer with for these types; None unless all are known."""
    if not ARRAY_TYPES.keys() >= set(oids):
        return None
    return [
        {
            "oid": oid,
            "ns": "pg_catalog",
            "name": ARRAY_TYPES[oid][0],
            "kind": b"b",
            "basetype": None,
            "elemtype": ARRAY_TYPES[oid][1],
            "elemdelim": b",",
            "range_subtype": None,
            "attrtypoids": None,
            "attrnames": None,
            "elemtype_name": ARRAY_TYPES[oid][0].removeprefix("_"),
        }
        for oid in oids
    ]
