"""An engine is connected to one database: its pool, its listener, and what reads by them."""

from __future__ import annotations

from typing import Literal, Self

from flowfabric.config import DatabaseConfig
from flowfabric.db import boot
from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.streams.reader import StreamReader


class ConnectedEngine:
    """What the methods of `Engine` run on."""

    is_remote: Literal[False] = False
    """Is the database behind a server?"""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.listener = Listener(pool.config)
        self.events = Hub(pool, self.listener)
        self.streams = StreamReader(pool, self.listener)

    @classmethod
    async def connect(cls, config: DatabaseConfig, *, role: str = "client") -> Self:
        """Open the pool and check that this code can work on this database."""
        pool = await Pool.open(config, role=role)
        try:
            async with pool.connection() as conn:
                await boot.check(conn, config.partitions)
        except BaseException:
            await pool.close()
            raise
        return cls(pool)

    async def close(self) -> None:
        """Subscriptions end, and every connection is closed."""
        await self.events.close()
        await self.streams.close()
        await self.listener.close()
        await self.pool.close()

    @property
    def partitions(self) -> int:
        """How many partitions this database has."""
        return self.pool.config.partitions.num_flow_partitions
