"""The classes of our connections."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import asyncpg

from flowfabric.db.array_codecs import ARRAY_CODECS
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


class OwnConnection(BaseConnection):
    """A connection for our own statements only: it encodes their arrays itself."""

    def __init__(self, protocol: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(protocol, *args, **kwargs)
        settings = protocol.get_settings()
        for codec in ARRAY_CODECS:
            # The public method, `set_type_codec`, asks the server first, and takes no arrays.
            settings.add_python_codec(
                codec.oid,
                codec.name,
                "pg_catalog",
                [],
                "array",
                codec.encode,
                codec.decode,
                "binary",
            )
