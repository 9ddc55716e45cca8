"""The class of our connections."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import asyncpg

if TYPE_CHECKING:
    _Base = asyncpg.Connection[asyncpg.Record]
else:
    _Base = asyncpg.Connection


def _array(oid: int, element: int, name: str) -> dict[str, Any]:
    return {
        "oid": oid,
        "ns": "pg_catalog",
        "name": f"_{name}",
        "kind": b"b",
        "elemtype": element,
        "elemdelim": ",",
        "elemtype_name": name,
        "basetype": None,
        "range_subtype": None,
        "attrtypoids": None,
    }


ARRAYS: Final = {
    each["oid"]: each
    for each in (
        _array(1000, 16, "bool"),
        _array(1001, 17, "bytea"),
        _array(1005, 21, "int2"),
        _array(1007, 23, "int4"),
        _array(1009, 25, "text"),
        _array(1016, 20, "int8"),
        _array(1022, 701, "float8"),
        _array(2951, 2950, "uuid"),
        _array(3807, 3802, "jsonb"),
    )
}
"""The arrays that our statements pass, by the numbers that they have in every Postgres."""
_NOT_ASKED: Final = SimpleNamespace(name="none")
"""Stands for the statement that would have asked the server."""


class BaseConnection(_Base):
    """A connection without a reset query: our statements leave no session state."""

    def get_reset_query(self) -> str:
        return ""

    async def _introspect_types(
        self, typeoids: Sequence[int], timeout: float | None
    ) -> tuple[Sequence[Any], Any]:
        """What the driver has to know of types; it would ask every new connection for arrays.

        That takes three round trips and a slow query, before the first statement with arrays.
        """
        if all(oid in ARRAYS for oid in typeoids):
            return [ARRAYS[oid] for oid in typeoids], _NOT_ASKED
        asked: Any = super()
        return await asked._introspect_types(typeoids, timeout)
