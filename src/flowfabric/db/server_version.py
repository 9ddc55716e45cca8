"""Which Postgres it is."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one

SERVER_VERSION: Final[LiteralString] = """
-- db.server_version
SELECT current_setting('server_version') AS version
"""


class _Row(msgspec.Struct, frozen=True):
    version: str


async def server_version(conn: Connection) -> str:
    """The version as the server says it, such as `16.2`."""
    return (await fetch_one(conn, SERVER_VERSION, _Row)).version
