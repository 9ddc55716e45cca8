"""The class of our connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    _Base = asyncpg.Connection[asyncpg.Record]
else:
    _Base = asyncpg.Connection


class BaseConnection(_Base):
    """A connection without a reset query: our statements leave no session state."""

    def get_reset_query(self) -> str:
        return ""
