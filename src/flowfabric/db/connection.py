"""The class of our connections."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import asyncpg

from flowfabric.db.array_types import KnownTypes, array_types

if TYPE_CHECKING:
    _Base = asyncpg.Connection[asyncpg.Record]
else:
    _Base = asyncpg.Connection


class BaseConnection(_Base):
    """A connection without a reset query: our statements leave no session state.

    It does not ask the server about arrays of built-in types.
    """

    def get_reset_query(self) -> str:
        return ""

    async def _introspect_types(self, typeoids: Collection[int], *args: Any, **kwargs: Any) -> Any:
        if (known := array_types(typeoids)) is not None:
            return known, KnownTypes
        return await super()._introspect_types(typeoids, *args, **kwargs)  # type: ignore[misc]
